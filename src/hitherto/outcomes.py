"""What became of an event, and every step on the way, as small frozen values.

``Keeper.handle`` returns an :class:`Outcome`. ``Keeper.listen`` gives each :class:`Step` to a callback:
logging, metrics and the inspector are fed from there and from nowhere else.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from hitherto import addresses, failures
from hitherto.addresses import Address, Key
from hitherto.leases import Running
from hitherto.protocol import Answer

_log = logging.getLogger("hitherto")

OutcomeStatus: TypeAlias = Literal[
    "committed", "duplicate", "queued", "debounced", "busy", "full", "dropped", "fenced", "failed", "no-key"
]
StepKind: TypeAlias = Literal[
    "accepted", "started", "committed", "renewed", "lost", "fenced", "failed", "recovered", "dropped",
    "dead", "released",
]  # fmt: skip


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What ``handle`` did with an event.

    ``committed``: its turn ran and was committed. ``duplicate``: it was handled, or waits, already.
    ``queued`` and ``debounced``: it is kept and will run. ``busy`` and ``full``: refused without a mark, a
    redelivery is handled later. ``dropped``: given up by the policy. ``fenced``: the lease was lost, whoever
    took over runs it. ``failed``: its handler raised. ``no-key``: it belongs to no conversation, the handler
    ran and nothing was kept. ``depth`` is how many events wait in the conversation now.
    """

    status: OutcomeStatus
    event_id: str | None = None
    key: Key = None
    depth: int = 0
    attempt: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the event is kept or handled: a webhook may answer 200."""
        return self.status not in ("busy", "full")

    def __repr__(self) -> str:
        return f"Outcome({self.status!r}, depth={self.depth})"


class Step(msgspec.Struct, frozen=True, gc=False):
    """One step in the life of an event; ``conversation`` is the address's text."""

    kind: StepKind
    bot: str
    conversation: str
    event_id: str | None = None
    epoch: int = 0
    depth: int = 0
    attempt: int = 0
    seconds: float = 0.0
    detail: str = ""
    flow: str | None = None
    state: str | None = None

    def __repr__(self) -> str:
        return f"Step({self.kind!r}, conversation={hashed(self.conversation)}, epoch={self.epoch})"


def hashed(text: str) -> str:
    """A short stable name for a conversation in logs, which does not tell whose it is."""
    return hashlib.blake2s(text.encode(), digest_size=6).hexdigest()


class Listeners:
    """Counts every step, logs it, and tells whoever listens; a listener that raises is logged and goes on."""

    def __init__(self, bot: str, log_ids: bool) -> None:
        self.bot = bot
        self.counts: Counter[str] = Counter()
        self.callbacks: list[Callable[[Step], object]] = []
        self._log_ids = log_ids

    def name(self, address: Address) -> str:
        """A conversation as logs may show it."""
        text = addresses.encode(address)
        return text if self._log_ids else hashed(text)

    def accepted(self, address: Address, event_id: str | None, answer: Answer) -> None:
        """An event was put to the store."""
        if answer.dropped:
            self._dropped(address, answer)
        if self.callbacks:
            self._tell("accepted", address, None, answer, detail=answer.status, event_id=event_id)

    def started(self, running: Running) -> None:
        """A handler is about to run."""
        if self.callbacks:
            self._tell("started", running.address, running, None)

    def settled(self, running: Running, answer: Answer, seconds: float) -> None:
        """A handler returned and the store answered."""
        if answer.dropped:
            self._dropped(running.address, answer)
        fenced = answer.status == "fenced"
        if running.grant.entries:
            self.counts["fenced" if fenced else "committed"] += 1
        if fenced:
            _log.warning("turn.fenced conversation=%s", self.name(running.address))
        if self.callbacks:
            self._tell("fenced" if fenced else "committed", running.address, running, answer, seconds)

    def failed(self, running: Running, answer: Answer, error: BaseException, seconds: float) -> None:
        """A handler raised, and the store knows."""
        self.counts["failed"] += 1
        kind = type(error).__name__
        _log.warning(
            "turn.failed conversation=%s error=%s where=%s",
            self.name(running.address), kind, failures.where(error),
        )  # fmt: skip
        _log.debug("turn.failed", exc_info=error)
        if self.callbacks:
            self._tell("failed", running.address, running, answer, seconds, kind)
        if answer.dropped:
            self._dropped(running.address, answer)

    def taken_over(self, address: Address, answer: Answer, recovered: bool) -> None:
        """Somebody looked at a conversation; *recovered*: what others left behind is run here."""
        if answer.dropped:
            self._dropped(address, answer)
        if recovered and answer.grant is not None:
            self.counts["recovered"] += 1
            _log.info("turn.recovered conversation=%s", self.name(address))
            if self.callbacks:
                entries = answer.grant.entries
                event_id = entries[-1].event_id if entries else None
                self._tell("recovered", address, None, answer, event_id=event_id)

    def renewed(self, running: Running) -> None:
        """A lease was renewed."""
        if self.callbacks:
            self._tell("renewed", running.address, running, None)

    def lost(self, running: Running) -> None:
        """A running turn has lost its lease."""
        self.counts["lost"] += 1
        _log.warning("turn.lost conversation=%s", self.name(running.address))
        if self.callbacks:
            self._tell("lost", running.address, running, None)

    def released(self, running: Running, answer: Answer) -> None:
        """A turn was given back unrun."""
        if self.callbacks:
            self._tell("released", running.address, running, answer)

    def _dropped(self, address: Address, answer: Answer) -> None:
        for dropped in answer.dropped:
            dead = dropped.reason == "dead"
            self.counts["dead" if dead else "given up"] += 1
            level = logging.DEBUG if dropped.reason == "superseded" else logging.WARNING
            name = "dead" if dead else f"dropped.{dropped.reason}"
            _log.log(level, "event.%s conversation=%s", name, self.name(address))
            if self.callbacks:
                self._tell(
                    "dead" if dead else "dropped", address, None, None,
                    detail=dropped.reason, event_id=dropped.event_id,
                )  # fmt: skip

    def _tell(
        self,
        kind: StepKind,
        address: Address,
        running: Running | None,
        answer: Answer | None,
        seconds: float = 0.0,
        detail: str = "",
        event_id: str | None = None,
    ) -> None:
        grant = running.grant if running is not None else answer.grant if answer is not None else None
        newest = grant.entries[-1] if grant is not None and grant.entries and event_id is None else None
        turn = None if running is None else running.turn
        flow, state = (None, None) if turn is None else turn.place
        self._send(
            Step(
                kind, self.bot, addresses.encode(address),
                event_id=event_id if newest is None else newest.event_id,
                epoch=0 if grant is None else grant.epoch,
                depth=0 if answer is None else answer.depth,
                attempt=0 if newest is None else newest.attempts,
                seconds=seconds, detail=detail, flow=flow, state=state,
            )
        )  # fmt: skip

    def _send(self, step: Step) -> None:
        for callback in tuple(self.callbacks):
            try:
                callback(step)
            except Exception as error:  # noqa: BLE001 - it is not our code
                failures.log("listener.failed", error)
