"""Lists of conversations: page by page along the sorted indexes of the shards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from heapq import nsmallest
from typing import Any, Final

import msgspec

from hitherto.addresses import Address, encode
from hitherto.stores.base import KINDS, Kind, Listed, is_in, none_first
from hitherto.stores.redis.layout import Layout
from hitherto.stores.redis.scripts import script

__all__ = ["Lists"]

PAGE: Final = 500


class _Glance(msgspec.Struct, array_like=True, gc=False):
    """A conversation as its script shows it."""

    version: int
    flow: str | bool
    state: str | bool
    recorded: bool
    touched: float
    pending: int
    dead: int
    lease_until: float | bool
    wake_at: float | bool


_decode = msgspec.msgpack.Decoder(_Glance).decode
_FILED: Final[dict[str, Callable[[Listed], bool]]] = {
    "all": lambda listed: True,
    "record": lambda listed: listed.recorded,
    "pending": lambda listed: listed.pending > 0,
    "lease": lambda listed: listed.lease_until is not None,
    "dead": lambda listed: listed.dead > 0,
}


class Lists:
    """The lists of one store; *ask* sends a command to the server of a slot, *glance* runs the script."""

    def __init__(
        self,
        layout: Layout,
        ask: Callable[..., Awaitable[Any]],
        glance: Callable[[Address], Awaitable[bytes | None]],
    ) -> None:
        self._layout, self._ask, self._glance = layout, ask, glance

    async def found(self, bot: str, kind: Kind) -> AsyncIterator[tuple[Address, Listed]]:
        """What is filed under *kind* (other than ``due``), shard by shard."""
        wanted = _FILED[kind] if kind in KINDS else _FILED["record"]
        for number in range(self._layout.shards):
            async for members in self._pages(bot, kind, number):
                for address, listed in await self._looked_at(bot, members):
                    if wanted(listed):
                        yield address, listed

    async def members(self, bot: str, realm: str) -> AsyncIterator[Address]:
        """Whatever is in a realm, shard by shard, unseen."""
        for number in range(self._layout.shards):
            last = ""
            while members := await self.page(bot, realm, number, last, PAGE):
                for member in members:
                    yield self._layout.address(bot, member)
                last = members[-1]

    async def counts(self, bot: str) -> list[tuple[str | None, str | None, int]]:
        """How many records there are in each state of each flow, sorted, ``None`` first."""
        number: Counter[tuple[str | None, str | None]] = Counter()
        async for _, listed in self.found(bot, "record"):
            number[listed.flow, listed.state] += 1
        return sorted([(*place, count) for place, count in number.items()], key=none_first)

    async def due(self, bot: str, now: str, limit: int) -> list[Address]:
        """What has waited longest, from all shards together."""
        shards = [self._layout.shard(bot, number) for number in range(self._layout.shards)]
        sha = script("due").sha
        pages = await asyncio.gather(
            *[self._ask(slot, "EVALSHA", sha, 1, due, now, limit) for slot, _, due, *_ in shards]
        )
        waiting = [
            (float(at), member) for page in pages for member, at in zip(page[::2], page[1::2], strict=True)
        ]
        return [self._layout.address(bot, member.decode()) for _, member in nsmallest(limit, waiting)]

    async def round(
        self, bot: str, start: tuple[int, str] | None, limit: int
    ) -> tuple[list[Address], tuple[int, str]]:
        """The next *limit* conversations, shard after shard, and where to go on (after all, in front)."""
        first, after = start or (0, "")
        found = [(first, member) for member in await self.page(bot, "", first, after, limit)]
        if len(found) < limit:
            others = range(first + 1, self._layout.shards)
            pages = await asyncio.gather(*[self.page(bot, "", number, "", limit) for number in others])
            found += [(number, member) for number, page in zip(others, pages, strict=True) for member in page]
        end = found[limit - 1] if len(found) >= limit else (0, "")
        return [self._layout.address(bot, member) for _, member in found[:limit]], end

    async def behind(self, bot: str, after: str, limit: int) -> list[str]:
        """The next *limit* members behind one, in order, from all shards together."""
        shards = range(self._layout.shards)
        pages = await asyncio.gather(*[self.page(bot, "", number, after, limit) for number in shards])
        return nsmallest(limit, [member for page in pages for member in page])

    async def browse(
        self, bot: str, flow: str | None, state: str | None, cursor: str, limit: int
    ) -> list[Listed]:
        """See :meth:`hitherto.stores.base.Store.browse`."""
        found: list[Listed] = []
        after = cursor.partition("/")[2]
        while len(found) < limit and (members := await self.behind(bot, after, max(limit, 50))):
            looked = [listed for _, listed in await self._looked_at(bot, members)]
            found += [listed for listed in looked if flow is None or is_in(listed, flow, state)]
            after = members[-1]
        return found[:limit]

    async def page(self, bot: str, realm: str, shard: int, after: str, limit: int) -> list[str]:
        """The next members of an index of a shard."""
        slot, index = self._layout.index(bot, shard, realm)
        behind = f"({after}" if after else "-"
        members = await self._ask(slot, "ZRANGEBYLEX", index, behind, "+", "LIMIT", 0, limit)
        return [member.decode() for member in members]

    async def _pages(self, bot: str, kind: Kind, number: int) -> AsyncIterator[list[str]]:
        """The members that may be filed under *kind*."""
        slot, _, due, dead, *_ = self._layout.shard(bot, number)
        if kind in ("pending", "lease", "dead"):
            command = ("SMEMBERS", dead) if kind == "dead" else ("ZRANGE", due, 0, -1)
            members = [member.decode() for member in await self._ask(slot, *command)]
            for start in range(0, len(members), PAGE):
                yield members[start : start + PAGE]
            return
        realm, last = "" if kind in KINDS else kind, ""
        while members := await self.page(bot, realm, number, last, PAGE):
            yield members
            last = members[-1]

    async def _looked_at(self, bot: str, members: list[str]) -> list[tuple[Address, Listed]]:
        """Those which are still there."""
        at = [self._layout.address(bot, member) for member in members]
        looked = await asyncio.gather(*[self._glance(address) for address in at])
        return [
            (address, _listed(address, _decode(packed)))
            for address, packed in zip(at, looked, strict=True)
            if packed is not None
        ]


def _listed(address: Address, glance: _Glance) -> Listed:
    return Listed(
        encode(address), address.key, _or_none(glance.flow), _or_none(glance.state), glance.recorded,
        glance.version, glance.touched, glance.pending, glance.dead, _or_none(glance.lease_until),
        _or_none(glance.wake_at),
    )  # fmt: skip


def _or_none(value: Any) -> Any:
    return None if value is False else value
