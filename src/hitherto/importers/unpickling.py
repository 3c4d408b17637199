"""Pickles of others, read without running anything that they name.

A pickle can name any function of Python and have it called. This unpickler knows the handful of classes that
the files of bot frameworks hold: containers and dates, and stand-ins without any behaviour for the rest. What
else is named, it refuses before it is called.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import io
import pickle
import sys
import uuid
from typing import Any, Final

from hitherto.errors import HithertoError

__all__ = ["Named", "Opaque", "Refused", "StateStandIn", "unpickle"]


class Refused(HithertoError):
    """The pickle names something that is not in such files; nothing was run."""


class Opaque:
    """Stands for an object of a class whose code is not run: it takes anything and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Nothing is kept."""

    def __setstate__(self, state: Any) -> None:
        """Nothing is kept."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nothing is kept."""

    def append(self, value: Any) -> None:
        """Nothing is kept."""

    def extend(self, values: Any) -> None:
        """Nothing is kept."""

    def __hash__(self) -> int:
        return id(self)


class Named:
    """Stands for a class that is only named, not called."""

    def __init__(self, name: str) -> None:
        self.name = name


class StateStandIn:
    """aiogram's ``State``, as a pickle holds it: the text it stands for can be told."""

    _state: str | None = None
    _group_name: str | None = None
    _group: Any = None

    @property
    def text(self) -> str | None:
        """The state's text as aiogram has it."""
        if self._state is None or self._state == "*":
            return self._state
        group = self._group_name or (self._group.name if isinstance(self._group, Named) else "@")
        return f"{group}:{self._state}"


def _default_dict(*_: Any) -> dict[Any, Any]:
    return {}


_KNOWN: Final[dict[tuple[str, str], Any]] = {
    **{("builtins", one.__name__): one for one in (set, frozenset, dict, list, tuple, bytearray, complex)},
    **{
        ("datetime", one.__name__): one
        for one in (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)
    },
    ("collections", "OrderedDict"): dict,
    ("collections", "defaultdict"): _default_dict,
    ("collections", "deque"): collections.deque,
    ("decimal", "Decimal"): decimal.Decimal,
    ("uuid", "UUID"): uuid.UUID,
    ("aiogram.fsm.state", "State"): StateStandIn,
}
_OLD_NAMES: Final = {"__builtin__": "builtins", "copy_reg": "copyreg", "exceptions": "builtins"}
_FRAMEWORKS: Final = ("telegram",)


class _Unpickler(pickle.Unpickler):
    """See the module's docstring; *strangers* says what classes of the bot's own are."""

    def __init__(self, data: bytes, strangers: str) -> None:
        super().__init__(io.BytesIO(data))
        self._strangers = strangers

    def find_class(self, module: str, name: str) -> Any:
        """What a name in the pickle stands for."""
        module = _OLD_NAMES.get(module, module)
        known = _KNOWN.get((module, name))
        if known is not None:
            return known
        top = module.partition(".")[0]
        if top in _FRAMEWORKS:
            return Opaque
        if top in sys.stdlib_module_names or self._strangers == "refuse":
            raise Refused(_why(module, name, top in sys.stdlib_module_names))
        return Opaque if self._strangers == "opaque" else Named(name)

    def persistent_load(self, pid: Any) -> Any:
        """python-telegram-bot puts these where a bot was."""
        return Opaque()


def _why(module: str, name: str, dangerous: bool) -> str:
    named = ascii(f"{module}.{name}"[:80])
    if dangerous:
        return f"the pickle names {named}, which no such file does: it was refused, and nothing of it was run"
    return (
        f"the pickle holds objects of {named}, a class that is not known here; --leave-out imports all but "
        "these, or turn them into plain data first"
    )


def unpickle(data: bytes, strangers: str = "refuse") -> Any:
    """What *data* holds; `Refused` if it names what it should not, or is no pickle.

    *strangers*: ``refuse`` classes of the bot's own, make them ``opaque``, or let them be ``named`` only.
    """
    try:
        return _Unpickler(data, strangers).load()
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises what it likes
        raise Refused(f"this is no pickle that can be read: {type(error).__name__}") from None
