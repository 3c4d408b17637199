"""OpenTelemetry spans of turns, fed by what a keeper tells its listeners.

::

    Tracing(keeper)                             # the global tracer provider, or tracer_provider=...

A span ``hitherto.turn`` reaches from the start of a handler to the store's answer and is current in the
handler, so that what happens there lies inside it. It bears no ids, keys or texts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from hitherto.errors import MissingExtra
from hitherto.keeper import Keeper
from hitherto.outcomes import Step

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_ENDS: Final = frozenset({"committed", "failed", "fenced", "released"})
_NOTES: Final = frozenset({"renewed", "lost"})
_MOST: Final = 100_000


class Tracing:
    """The spans of one keeper's turns, from now until :meth:`stop`."""

    def __init__(self, keeper: Keeper, *, tracer_provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import context, trace
        except ImportError as error:
            raise MissingExtra("hitherto.tracing", "otel") from error
        self._tracer = trace.get_tracer("hitherto", tracer_provider=tracer_provider)
        self._trace, self._context = trace, context
        self._open: dict[tuple[str, int, str | None, int], tuple[Any, Any, object]] = {}
        self.stop = keeper.listen(self._heard)

    def _heard(self, step: Step) -> None:
        turn = (step.conversation, step.epoch, step.event_id, step.attempt)
        if step.kind == "started":
            self._begin(turn, step)
        elif step.kind in _ENDS:
            self._end(turn, step)
        elif step.kind in _NOTES and turn in self._open:
            self._open[turn][0].add_event(f"hitherto.lease.{step.kind}")

    def _begin(self, turn: tuple[str, int, str | None, int], step: Step) -> None:
        span = self._tracer.start_span("hitherto.turn", attributes=_said(step))
        token = self._context.attach(self._trace.set_span_in_context(span))
        if len(self._open) >= _MOST:
            self._open.pop(next(iter(self._open)))[0].end()
        self._open[turn] = span, token, asyncio.current_task()

    def _end(self, turn: tuple[str, int, str | None, int], step: Step) -> None:
        span, token, task = self._open.pop(turn, (None, None, None))
        if span is None:
            return
        if asyncio.current_task() is task:
            # a turn that another task finishes has taken its context with it
            self._context.detach(token)
        span.set_attribute("hitherto.result", step.kind)
        span.set_attributes(
            {"hitherto.flow.after": step.flow or "", "hitherto.state.after": step.state or ""}
        )
        if step.kind in ("failed", "fenced"):
            status = self._trace.Status(self._trace.StatusCode.ERROR, step.detail or step.kind)
            span.set_status(status)
        span.end()


def _said(step: Step) -> dict[str, Any]:
    return {
        "hitherto.bot": step.bot, "hitherto.attempt": step.attempt, "hitherto.epoch": step.epoch,
        "hitherto.flow": step.flow or "", "hitherto.state": step.state or "",
    }  # fmt: skip
