"""What happened lately: the steps a keeper told, kept in memory within bounds, the newest at the front."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Final

import msgspec

from hitherto.keeper import Keeper
from hitherto.outcomes import Step

_TOLD: Final = frozenset(
    {"started", "committed", "failed", "fenced", "lost", "recovered", "dropped", "dead", "released"}
)


class Moment(msgspec.Struct, frozen=True):
    """A step and when it was told, by this machine's clock."""

    at: float
    step: Step


class History:
    """The newest steps of the newest conversations of one keeper, from now until :meth:`stop`."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        conversations: int = 500,
        each: int = 40,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._conversations, self._each, self._clock = conversations, each, clock
        self._steps: OrderedDict[str, deque[Moment]] = OrderedDict()
        self.latest: deque[Moment] = deque(maxlen=each)
        self.stop = keeper.listen(self._heard)

    def _heard(self, step: Step) -> None:
        if step.kind not in _TOLD:
            return
        moment = Moment(self._clock(), step)
        if step.conversation not in self._steps:
            self._steps[step.conversation] = deque(maxlen=self._each)
            if len(self._steps) > self._conversations:
                self._steps.popitem(last=False)
        self._steps.move_to_end(step.conversation)
        self._steps[step.conversation].append(moment)
        if step.kind != "started":
            self.latest.append(moment)

    def of(self, conversation: str, limit: int = 40) -> list[Moment]:
        """The newest steps of a conversation, by its address's text."""
        return list(islice(reversed(self._steps.get(conversation, ())), limit))
