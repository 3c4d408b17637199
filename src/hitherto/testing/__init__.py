"""What tests of bots and of stores need: a clock that can be set, the kit of contract clauses, fake servers.

Each name is imported when it is asked for, so that the clock needs no pytest and the kit no Hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hitherto.testing.clock import ManualClock as ManualClock

_HOMES: Final = {"ManualClock": "clock"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
