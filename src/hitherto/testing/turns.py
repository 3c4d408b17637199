"""The clauses of the turn: accept, run, commit."""

from __future__ import annotations

from typing import ClassVar

from hitherto.testing.accepting import AcceptContract
from hitherto.testing.repeating import RepeatContract
from hitherto.testing.settling import SettleContract


class TurnContract(AcceptContract, SettleContract, RepeatContract):
    """The promise of the turn: accepted means kept, handled once in effect, in order, one writer, bounded."""

    mixin: ClassVar[bool] = True
