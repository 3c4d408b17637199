"""Polling for pyTelegramBotAPI: what came, what of it was not accepted, and who must not overtake it."""

from __future__ import annotations

from typing import Any, TypeAlias

from telebot import types

from hitherto import sync
from hitherto.addresses import key_text
from hitherto.errors import HithertoError
from hitherto.keeper import Keeper
from hitherto.outcomes import Outcome

__all__ = ["AnyKeeper", "Held", "NotAccepted", "check"]

AnyKeeper: TypeAlias = sync.Keeper | Keeper


class NotAccepted(HithertoError):
    """The conversation is busy or full, and the overlap policy refuses the update: it has to come again."""


class Held:
    """What has come by polling, and the first of it that was not accepted and must be asked for again."""

    def __init__(self) -> None:
        self.polled: set[int] = set()
        self.refused: set[str] = set()
        self.first: int | None = None

    def knows(self, updates: list[types.Update]) -> bool:
        """Whether these came by polling: they can be asked for again."""
        return all(update.update_id in self.polled for update in updates)

    def comes_before(self, event: Any, keeper: AnyKeeper) -> bool:
        """Whether an earlier one of the same conversation was refused: this one must not overtake it."""
        return bool(self.refused) and _line(event, keeper) in self.refused

    def hold(self, event: Any, keeper: AnyKeeper | None = None) -> None:
        """Ask for this one again, and for those of its conversation behind it."""
        number = event["update_id"]
        self.first = number if self.first is None else min(self.first, number)
        if keeper is not None:
            self.refused.add(_line(event, keeper))

    def take(self) -> int | None:
        """What to ask for again."""
        held, self.first = self.first, None
        return held


def _line(event: Any, keeper: AnyKeeper) -> str:
    return key_text(keeper.strategy.extract(event))


def check(outcome: Outcome) -> None:
    """Whoever brings an update that is refused must bring it again."""
    if not outcome.accepted:
        raise NotAccepted(f"the conversation is {outcome.status}: the update was not accepted")
