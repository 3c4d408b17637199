"""Everything that is promised of a store, in one contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hitherto.chatstate import ChatState, Snapshot
from hitherto.records import Record
from hitherto.stores.base import Store
from hitherto.testing.chat import ChatStateContract, filled
from hitherto.testing.fsm import FSMStorageContract
from hitherto.testing.kit import BOT
from hitherto.testing.primitives import PrimitivesContract
from hitherto.testing.turns import TurnContract

if TYPE_CHECKING:
    from hitherto.contracts import ChatStateAdapter


class StoreContract(PrimitivesContract, FSMStorageContract, TurnContract, ChatStateContract):
    """The whole kit: the five primitives, FSM storage, the turn, and chat state on top of it."""

    mixin: ClassVar[bool] = True

    async def test_bots_have_their_own_chat_state(self, store: Store, chat: ChatStateAdapter) -> None:
        """Two bots in one store have nothing in common, in snapshots and restores neither."""
        other = ChatState(store, "another")
        await filled(chat)
        taken = await chat.snapshot()
        assert await other.snapshot() == Snapshot()
        assert await other.lock("k1", "ann") == "acquired"
        await other.restore(Snapshot())
        assert await chat.snapshot() == taken

    async def test_conversations_are_not_touched(self, store: Store, chat: ChatStateAdapter) -> None:
        """Chat state and conversations of one bot have nothing in common, whatever the ids and keys."""
        for key in (("t1",), "t1", (), ("dedupe",)):
            await store.set_state(BOT, key, Record("signup", "name", {"a": 1}))
        await filled(chat)
        await chat.restore(Snapshot())
        for key in (("t1",), "t1", (), ("dedupe",)):
            assert await store.get_state(BOT, key) == Record("signup", "name", {"a": 1})

    async def test_what_is_over_leaves_nothing_to_list(self, store: Store, chat: ChatStateAdapter) -> None:
        """What was ended is no longer listed in its realm."""

        async def listed() -> list[str]:
            realms = ("subscription", "thread", "channel", "lock")
            return [address.realm for realm in realms async for address in store.scan(BOT, realm)]

        await filled(chat)
        assert sorted(await listed()) == ["channel", "lock", "lock", "subscription", "subscription", "thread"]
        await chat.restore(Snapshot())
        assert await listed() == []
