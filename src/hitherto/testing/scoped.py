"""A store seen through a prefix: every bot has another name, so that the kit leaves real bots alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from hitherto.addresses import Address, decode, encode
from hitherto.document import Claim, Document, Terms
from hitherto.stores.base import Kind, Listed, Store


def _at_an_address(name: str) -> Any:
    async def operation(self: Scoped, address: Address, *given: Any, **named: Any) -> Any:
        return await getattr(self.inner, name)(self.inside(address), *given, **named)

    operation.__name__ = name
    return operation


def _of_a_bot(name: str) -> Any:
    async def operation(self: Scoped, bot: str, *given: Any, **named: Any) -> Any:
        return await getattr(self.inner, name)(self.renamed(bot), *given, **named)

    operation.__name__ = name
    return operation


class Scoped(Store):
    """Everything of *inner*, under bots whose names begin with *scope*."""

    def __init__(self, inner: Store, scope: str) -> None:
        super().__init__(clock=inner.clock)
        self.inner, self.scope = inner, scope
        self.bots: set[str] = set()

    def renamed(self, bot: str) -> str:
        """The bot's name in the store; what is no name stays as it is, to be refused there."""
        if type(bot) is not str or not bot:
            return bot
        self.bots.add(bot)
        return self.scope + bot

    def inside(self, address: Address) -> Address:
        """An address as the store knows it."""
        return address._replace(bot=self.renamed(address.bot))

    def outside(self, address: Address) -> Address:
        """An address as the caller knows it."""
        return address._replace(bot=address.bot.removeprefix(self.scope))

    def op(self) -> str | None:
        """Whatever the store gives."""
        return self.inner.op()

    async def open(self) -> None:
        """Open the store."""
        await self.inner.open()

    async def close(self) -> None:
        """Close the store."""
        await self.inner.close()

    async def now(self) -> float:
        """The store's time."""
        return await self.inner.now()

    async def load(self, address: Address) -> Document:
        """The store's document."""
        return await self.inner.load(self.inside(address))

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """The store's compare-and-swap."""
        return await self.inner.swap(self.inside(address), expected_version, document)

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """The store's list, under the names the caller knows."""
        async for address in self.inner.scan(self.renamed(bot), kind):
            yield self.outside(address)

    transact = _at_an_address("transact")
    read = _at_an_address("read")
    write = _at_an_address("write")
    accept = _at_an_address("accept")
    take_over = _at_an_address("take_over")
    acquire = _at_an_address("acquire")
    settle = _at_an_address("settle")
    release = _at_an_address("release")
    force_release = _at_an_address("force_release")
    retry_dead = _at_an_address("retry_dead")
    drop_dead = _at_an_address("drop_dead")
    forget = _at_an_address("forget")

    init = _of_a_bot("init")
    get_state = _of_a_bot("get_state")
    set_state = _of_a_bot("set_state")
    get_data = _of_a_bot("get_data")
    set_data = _of_a_bot("set_data")
    update_data = _of_a_bot("update_data")
    clear = _of_a_bot("clear")
    counts = _of_a_bot("counts")
    expire = _of_a_bot("expire")

    async def renew(self, claims: Sequence[tuple[Address, Claim]], terms: Terms) -> list[bool]:
        """The store's renewal."""
        return await self.inner.renew([(self.inside(address), claim) for address, claim in claims], terms)

    async def due(self, bot: str, limit: int) -> list[Address]:
        """The store's list of what is due."""
        return [self.outside(address) for address in await self.inner.due(self.renamed(bot), limit)]

    async def browse(
        self, bot: str, *, flow: str | None = None, state: str | None = None, after: str = "", limit: int = 50
    ) -> list[Listed]:
        """The store's pages, under the names the caller knows."""
        cursor = encode(self.inside(decode(after))) if after else ""
        listed = await self.inner.browse(self.renamed(bot), flow=flow, state=state, after=cursor, limit=limit)
        return [replace(one, cursor=encode(self.outside(decode(one.cursor)))) for one in listed]

    async def erase(self) -> None:
        """Forget everything that was kept under this prefix."""
        for bot in self.bots:
            for address in [one async for one in self.inner.scan(self.scope + bot, "everything")]:
                await self.inner.forget(address)
