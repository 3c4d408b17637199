"""What tests of bots and of stores need: a clock that can be set, the kit of contract clauses, fake servers.

Each name is imported when it is asked for, so that the clock needs no pytest and the kit no Hypothesis.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hitherto.testing.chat import ChatStateContract as ChatStateContract
    from hitherto.testing.clock import ManualClock as ManualClock
    from hitherto.testing.fsm import FSMStorageContract as FSMStorageContract
    from hitherto.testing.kit import ABILITIES as ABILITIES
    from hitherto.testing.kit import Talk as Talk
    from hitherto.testing.kit import clauses as clauses
    from hitherto.testing.machine import StoreMachine as StoreMachine
    from hitherto.testing.machine import machine_for as machine_for
    from hitherto.testing.primitives import PrimitivesContract as PrimitivesContract
    from hitherto.testing.stores import StoreContract as StoreContract
    from hitherto.testing.turns import TurnContract as TurnContract

_HOMES: Final = {
    "ABILITIES": "kit",
    "ChatStateContract": "chat",
    "FSMStorageContract": "fsm",
    "ManualClock": "clock",
    "PrimitivesContract": "primitives",
    "StoreContract": "stores",
    "StoreMachine": "machine",
    "Talk": "kit",
    "TurnContract": "turns",
    "clauses": "kit",
    "machine_for": "machine",
}
_CLAUSES: Final = (
    "kit",
    "primitives",
    "fsm",
    "accepting",
    "settling",
    "repeating",
    "chat",
    "stores",
    "machine",
)

if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(*[f"{__name__}.{home}" for home in _CLAUSES])


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
