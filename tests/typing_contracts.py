"""Our own classes keep the three contracts, as the type checkers see it; checked by mypy and pyright."""

from __future__ import annotations

from typing import Any

from hitherto import Chat, ChatState, ChatTopic, ChatTopicUser, ChatUser, MemoryStore, Record, User
from hitherto.addresses import Key as AddressKey
from hitherto.contracts import ChatStateAdapter, FSMStorage, Key
from hitherto.stores import Store
from hitherto.stores.adapted import AdaptedStore


def storages(memory: MemoryStore, any_store: Store, adapted: AdaptedStore, own: Smallest) -> list[FSMStorage]:
    return [memory, any_store, adapted, own]


def strategies() -> list[Key]:
    return [ChatUser(), User(), Chat(), ChatTopic(), ChatTopicUser(), FirstLetter()]


def adapters(chat: ChatState) -> list[ChatStateAdapter]:
    return [chat]


class FirstLetter:
    """A key strategy of one's own."""

    def extract(self, event: Any) -> tuple[str] | None:
        return (str(event)[0],) if event else None


class Smallest:
    """A storage of one's own."""

    async def init(self, bot: str, **options: Any) -> None: ...

    async def get_state(self, bot: str, key: AddressKey) -> Record | None:
        return None

    async def set_state(self, bot: str, key: AddressKey, record: Record) -> None: ...

    async def get_data(self, bot: str, key: AddressKey) -> dict[str, Any] | None:
        return None

    async def set_data(self, bot: str, key: AddressKey, data: dict[str, Any]) -> None: ...

    async def update_data(self, bot: str, key: AddressKey, new: dict[str, Any]) -> dict[str, Any]:
        return new

    async def clear(self, bot: str, key: AddressKey) -> None: ...
