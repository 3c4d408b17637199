"""Prometheus metrics of a keeper, fed by what it tells its listeners; no metric has an id as a label.

::

    async with Keeper("my_bot", ...) as keeper, Metrics(keeper):
        ...                          # prometheus_client.start_http_server(9100), or make_asgi_app()

``docs/grafana.json`` is a dashboard of these metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from hitherto.errors import HithertoError, MissingExtra
from hitherto.keeper import Keeper
from hitherto.outcomes import Step

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_DEPTHS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 1000)
_ENDS: Final = frozenset({"committed", "failed", "fenced", "released"})
_MOST_WAITING: Final = 10_000


class Metrics:
    """The metrics of one keeper, from now until :meth:`stop`.

    *registry*: where they are collected, prometheus_client's own unless given; several keepers may share one.
    *every*: how often, in seconds, conversations are counted by flow and state. A store counts them for this:
    on millions of conversations choose minutes.
    """

    def __init__(
        self, keeper: Keeper, *, registry: CollectorRegistry | None = None, every: float = 60.0
    ) -> None:
        self.keeper, self.every = keeper, every
        self._families = _families(registry)
        self._waiting: dict[tuple[str, str | None], float] = {}
        self._places: set[tuple[str, str]] = set()
        self._counting: asyncio.Task[None] | None = None
        self._deaf = keeper.listen(self._heard)
        for name, value in (
            ("running", lambda: keeper.health().running),
            ("healthy", lambda: keeper.health().ok),
        ):
            self._families[name].labels(keeper.bot).set_function(value)

    async def __aenter__(self) -> Self:
        self._counting = asyncio.get_running_loop().create_task(self._count_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Listen no more; what was counted stays."""
        self._deaf()
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None

    async def count(self) -> None:
        """Ask the store how many conversations are in each state of each flow, now."""
        conversations, bot = self._families["conversations"], self.keeper.bot
        counted = await self.keeper.store.counts(bot)
        places = {(flow or "", state or ""): number for flow, state, number in counted}
        for place in self._places - places.keys():
            conversations.labels(bot, *place).set(0)
        for place, number in places.items():
            conversations.labels(bot, *place).set(number)
        self._places |= places.keys()

    async def _count_for_ever(self) -> None:
        while True:
            with contextlib.suppress(HithertoError, OSError):
                await self.count()
            await asyncio.sleep(self.every)

    def _heard(self, step: Step) -> None:
        heard: Callable[[Step], None] | None = getattr(self, f"_{step.kind}", None)
        if step.kind in _ENDS:
            self._ended(step)
        elif heard is not None:
            heard(step)

    def _accepted(self, step: Step) -> None:
        self._families["events"].labels(step.bot, step.detail).inc()
        self._families["depth"].labels(step.bot).observe(step.depth)
        if step.detail in ("granted", "queued", "debounced"):
            if len(self._waiting) >= _MOST_WAITING:
                del self._waiting[next(iter(self._waiting))]
            self._waiting[step.conversation, step.event_id] = time.monotonic()

    def _started(self, step: Step) -> None:
        since = self._waiting.pop((step.conversation, step.event_id), None)
        if since is not None:
            self._families["wait"].labels(step.bot).observe(time.monotonic() - since)

    def _ended(self, step: Step) -> None:
        flow = step.flow or ""
        self._families["turns"].labels(step.bot, flow, step.kind).inc()
        if step.kind != "released":
            self._families["duration"].labels(step.bot, flow).observe(step.seconds)

    def _lost(self, step: Step) -> None:
        self._families["lost"].labels(step.bot).inc()

    def _recovered(self, step: Step) -> None:
        self._families["recovered"].labels(step.bot).inc()

    def _dropped(self, step: Step) -> None:
        self._waiting.pop((step.conversation, step.event_id), None)
        self._families["dropped"].labels(step.bot, step.detail).inc()

    def _dead(self, step: Step) -> None:
        self._families["dead"].labels(step.bot).inc()


def _families(registry: CollectorRegistry | None) -> dict[str, Any]:
    """The metrics in a registry, made once."""
    try:
        from prometheus_client import REGISTRY, Counter, Gauge, Histogram
    except ImportError as error:
        raise MissingExtra("hitherto.metrics", "prometheus") from error
    registry = REGISTRY if registry is None else registry
    known: dict[str, Any] | None = getattr(registry, "_hitherto", None)
    if known is not None:
        return known

    def made(kind: Any, name: str, says: str, *labels: str, **more: Any) -> Any:
        return kind(f"hitherto_{name}", says, ("bot", *labels), registry=registry, **more)

    known = {
        "events": made(Counter, "events", "Events put to the store, by what it answered.", "answer"),
        "turns": made(Counter, "turns", "Turns that ended, by the flow they ended in.", "flow", "result"),
        "duration": made(
            Histogram, "turn_duration_seconds", "From the start of a handler to the store's answer.", "flow",
            buckets=_SECONDS,
        ),
        "wait": made(
            Histogram, "turn_wait_seconds", "From an event's acceptance to its handler.", buckets=_SECONDS
        ),
        "depth": made(
            Histogram, "queue_depth", "Events waiting in a conversation when one comes.", buckets=_DEPTHS
        ),
        "lost": made(Counter, "leases_lost", "Turns that lost their lease while they ran."),
        "recovered": made(Counter, "recovered", "Conversations taken over from others."),
        "dropped": made(Counter, "dropped", "Events given up by a policy.", "reason"),
        "dead": made(Counter, "dead_letters", "Events that became dead letters."),
        "running": made(Gauge, "running_turns", "Turns that run in this process."),
        "healthy": made(Gauge, "healthy", "1 while leases are renewed and the sweep works."),
        "conversations": made(Gauge, "conversations", "Conversations by place.", "flow", "state"),
    }  # fmt: skip
    registry._hitherto = known  # type: ignore[attr-defined]
    return known
