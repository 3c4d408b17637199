"""The three contracts as Protocols, clause by clause; implement any of them alone.

``FSMStorage``: where records are kept; an object with just these seven methods can be ``Keeper(store=...)``.
``Key``: which conversation an event belongs to; ``Keeper(key=...)``.
``ChatStateAdapter``: what a chat integration remembers; wherever a ``ChatState`` is taken.

Every store of this library is an ``FSMStorage``, every strategy of :mod:`hitherto.keys` a ``Key``, and
``ChatState`` is the ``ChatStateAdapter`` on any of them.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from hitherto import addresses
from hitherto.chatstate import DedupeKey, Id, LockAnswer, Pending, Released, Snapshot, Strategy
from hitherto.records import Record

__all__ = ["ChatStateAdapter", "FSMStorage", "Key"]


@runtime_checkable
class FSMStorage(Protocol):
    """Records of conversations, for any number of bots.

    ``bot`` comes first, so that one storage serves many bots, which never see each other's records. ``key``
    is opaque: a tuple of JSON scalars (text, numbers, bools, ``None``), in which ``1``, ``"1"`` and ``True``
    differ. A failure is raised, never swallowed.
    """

    async def init(self, bot: str, **options: Any) -> None:
        """Make ready for *bot*. Idempotent; called by ``Keeper.start`` with every option of the keeper."""
        ...

    async def get_state(self, bot: str, key: addresses.Key) -> Record | None:
        """The record, the caller's own to change; ``None`` if there is none."""
        ...

    async def set_state(self, bot: str, key: addresses.Key, record: Record) -> None:
        """Create or overwrite the record: flow, state and data."""
        ...

    async def get_data(self, bot: str, key: addresses.Key) -> dict[str, Any] | None:
        """The data, the caller's own to change; ``None`` if there is no record."""
        ...

    async def set_data(self, bot: str, key: addresses.Key, data: dict[str, Any]) -> None:
        """Overwrite the data and keep flow and state; without a record, make one whose state is ``None``."""
        ...

    async def update_data(self, bot: str, key: addresses.Key, new: dict[str, Any]) -> dict[str, Any]:
        """Merge *new* in and give the whole.

        Top-level keys; new ones win. Atomic: fifty at once leave fifty keys. Without a record, make one whose
        state is ``None``.
        """
        ...

    async def clear(self, bot: str, key: addresses.Key) -> None:
        """Remove everything; no error if there is nothing. ``get_state`` is ``None`` afterwards."""
        ...


@runtime_checkable
class Key(Protocol):
    """A key strategy: which conversation an event belongs to. A plain function does as well."""

    def extract(self, event: Any, /) -> tuple[Any, ...] | None:
        """The key of *event*, a tuple of JSON scalars; ``None`` when it belongs to no conversation.

        ``None`` lets the turn run with an empty record: nothing is loaded and nothing is stored. An event of
        an unknown kind is ``None``, never an exception. Different conversations never have equal keys.
        """
        ...


@runtime_checkable
class ChatStateAdapter(Protocol):
    """What a chat integration remembers of one bot beside its conversations.

    Every method is one atomic step, apart from ``snapshot`` and ``restore``. Ids, keys and owners compare as
    text: ``7`` and ``"7"`` are the same.
    """

    async def is_subscribed(self, id: Id) -> bool:
        """Whether the thread is subscribed to."""
        ...

    async def subscribe(self, id: Id) -> None:
        """Subscribe; idempotent."""
        ...

    async def unsubscribe(self, id: Id) -> None:
        """End the subscription; idempotent."""
        ...

    async def thread_state(self, id: Id) -> dict[str, Any]:
        """The thread's map; ``{}`` when unset. A thread and a channel of the same id never collide."""
        ...

    async def put_thread_state(self, id: Id, map: dict[str, Any]) -> None:
        """Replace the thread's map."""
        ...

    async def update_thread_state(self, id: Id, new: dict[str, Any]) -> dict[str, Any]:
        """Merge into the thread's map atomically, new keys win; the whole is the answer."""
        ...

    async def channel_state(self, id: Id) -> dict[str, Any]:
        """The channel's map; ``{}`` when unset."""
        ...

    async def put_channel_state(self, id: Id, map: dict[str, Any]) -> None:
        """Replace the channel's map."""
        ...

    async def update_channel_state(self, id: Id, new: dict[str, Any]) -> dict[str, Any]:
        """Merge into the channel's map atomically, new keys win; the whole is the answer."""
        ...

    async def is_duplicate(self, key: DedupeKey) -> bool:
        """Whether ``(adapter, message id)`` is in the window of seen messages."""
        ...

    async def mark_seen(self, key: DedupeKey, limit: int) -> None:
        """Put *key* into the window, which holds the newest *limit* keys and forgets the oldest first.

        Marking a key again refreshes it and never evicts another; a smaller limit trims at once; a limit
        below 1 is an error.
        """
        ...

    async def claim(self, key: DedupeKey, limit: int) -> bool:
        """``is_duplicate`` and ``mark_seen`` in one atomic step; ``True`` if it was not seen before."""
        ...

    async def lock(
        self,
        key: Id,
        owner: Id,
        strategy: Strategy = "reject",
        metadata: Any = None,
        ttl: float | None = None,
    ) -> LockAnswer:
        """Take a lock, or answer by the caller's own *strategy* when it is held, also by *owner* itself.

        ``reject``: ``busy``. ``queue``: appended to what is pending, ``queued``. ``debounce``: replaces all
        that is pending, ``debounced``. ``concurrent``: always ``acquired``, nothing stored. An unknown
        strategy is an error that changes nothing. With *ttl* the lock dies by itself after so many seconds.
        """
        ...

    async def release_lock(self, key: Id, owner: Id) -> Released:
        """Free the lock; the pending entries, in order, are the answer, and lock and pending are gone.

        Nobody is handed the lock. Not the owner, or nobody holds it: ``NOT_OWNER`` and nothing changes.
        Pending entries without a lock (out of a snapshot) are part of the next release.
        """
        ...

    async def force_release_lock(self, key: Id) -> list[Pending]:
        """Free the lock whoever holds it; the pending entries, in order, are the answer."""
        ...

    async def snapshot(self) -> Snapshot:
        """All of it as plain values, fit for any other store."""
        ...

    async def restore(self, snapshot: Snapshot) -> None:
        """Replace all of it; a held lock can still be released by its owner."""
        ...
