"""Everything a bot knew about a conversation, up to this moment, kept.

The one public door: every name of ``__all__`` is imported from its module when it is first asked for, so that
``import hitherto`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitherto.chatstate import ChatState, Snapshot, normalize_snapshot
    from hitherto.errors import (
        DataError,
        Fenced,
        HithertoError,
        InvalidTransition,
        StoreError,
        UnknownFlow,
        UnknownState,
    )
    from hitherto.flows import Flow, State
    from hitherto.keeper import Keeper
    from hitherto.keys import Chat, ChatTopic, ChatTopicUser, ChatUser, User
    from hitherto.outcomes import Outcome
    from hitherto.overlap import Burst, Concurrent, Debounce, Queue, Reject
    from hitherto.records import Record
    from hitherto.stores import open_store
    from hitherto.stores.memory import MemoryStore
    from hitherto.turns import Turn

__version__ = "0.1.0"

__all__ = [
    "Burst",
    "Chat",
    "ChatState",
    "ChatTopic",
    "ChatTopicUser",
    "ChatUser",
    "Concurrent",
    "DataError",
    "Debounce",
    "Fenced",
    "Flow",
    "HithertoError",
    "InvalidTransition",
    "Keeper",
    "MemoryStore",
    "Outcome",
    "Queue",
    "Record",
    "Reject",
    "Snapshot",
    "State",
    "StoreError",
    "Turn",
    "UnknownFlow",
    "UnknownState",
    "User",
    "normalize_snapshot",
    "open_store",
]

_NAMES = {
    "chatstate": ("ChatState", "Snapshot", "normalize_snapshot"),
    "errors": (
        "DataError",
        "Fenced",
        "HithertoError",
        "InvalidTransition",
        "StoreError",
        "UnknownFlow",
        "UnknownState",
    ),
    "flows": ("Flow", "State"),
    "keeper": ("Keeper",),
    "keys": ("Chat", "ChatTopic", "ChatTopicUser", "ChatUser", "User"),
    "outcomes": ("Outcome",),
    "overlap": ("Burst", "Concurrent", "Debounce", "Queue", "Reject"),
    "records": ("Record",),
    "stores": ("open_store",),
    "stores.memory": ("MemoryStore",),
    "turns": ("Turn",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hitherto' has no attribute {name!r}")
    value = getattr(import_module(f"hitherto.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
