"""Where a conversation lies: its shard, the hash slot they share, and the names of its keys.

The conversations of a bot are spread over a fixed number of shards by a hash of their address. The keys of
one conversation and the indexes of its shard carry the same hash tag ``{prefix:bot:shard}``, so that a script
has all of them at hand in a cluster too::

    {hitherto:my_bot:17}:conversation:/-100/7    lease, epoch, flow, state, inbox (packed)
    {hitherto:my_bot:17}:data:/-100/7            a hash: one field for each top-level key, its value as JSON
    {hitherto:my_bot:17}:seen:/-100/7            a hash: the window of handled event ids
    {hitherto:my_bot:17}:payloads:/-100/7        a hash: the payloads of what waits, and the dead letters
    {hitherto:my_bot:17}:results:/-100/7         a list: what recent operations answered
    {hitherto:my_bot:17}:due                     a sorted set: who must be looked at, and when
    {hitherto:my_bot:17}:all, :all:<realm>       sorted sets: every conversation; every entry of another realm
    {hitherto:my_bot:17}:dead                    a set: the conversations with dead letters
    {hitherto:my_bot}:layout                     how many shards the bot has, which never changes
"""

from __future__ import annotations

import binascii
import re
import zlib
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from hitherto import addresses
from hitherto.addresses import Address

SLOTS = 16384


class Shard(NamedTuple):
    """One shard of a bot: its hash slot, the keys of its indexes, and how those of conversations begin."""

    slot: int
    tag: str
    due: bytes
    dead: bytes
    all: bytes
    conversation: bytes
    data: bytes
    seen: bytes
    payloads: bytes
    results: bytes


class Place(NamedTuple):
    """Where one conversation lies; ``member`` is its name in the indexes."""

    slot: int
    keys: tuple[bytes, ...]
    member: str
    indexed: bool


class Layout:
    """The names of a store's keys."""

    def __init__(self, prefix: str, shards: int) -> None:
        self.prefix, self.shards = prefix, shards
        self._shards = lru_cache(maxsize=4096)(self._shard)

    def shard(self, bot: str, number: int) -> Shard:
        """A shard of a bot."""
        return self._shards(quote(bot, safe=""), number)

    def _shard(self, bot: str, number: int) -> Shard:
        tag = f"{{{self.prefix}:{bot}:{number}}}"
        kinds = ("due", "dead", "all", "conversation:", "data:", "seen:", "payloads:", "results:")
        return Shard(slot_of(tag[1:-1].encode()), tag, *[f"{tag}:{kind}".encode() for kind in kinds])

    def place(self, address: Address) -> Place:
        """Where a conversation lies; always the same for the same address."""
        text = addresses.encode(address)
        bot, _, member = text.partition("/")
        shard = self._shards(bot, zlib.crc32(text.encode()) % self.shards)
        slot, tag, due, dead, index, conversation, data, seen, payloads, results = shard
        end, indexed = member.encode(), member[0] == "/"
        if not indexed:
            index = _index_of(tag, member.partition("/")[0])
        keys = (
            conversation + end, data + end, seen + end, payloads + end, due, index, dead, results + end,
        )  # fmt: skip
        return Place(slot, keys, member, indexed)

    def index(self, bot: str, number: int, realm: str) -> tuple[int, bytes]:
        """The slot and the key of the sorted set of everything in a realm of a shard."""
        slot, tag, *_ = self.shard(bot, number)
        return slot, _index_of(tag, quote(realm, safe=""))

    def indexes(self, bot: str) -> str:
        """A glob pattern of the sorted sets of all realms of a bot."""
        prefix = re.sub(r"([*?\[\]\\^])", r"\\\1", self.prefix)
        return f"{{{prefix}:{quote(bot, safe='')}:*}}:all*"

    def realm_of(self, index: bytes) -> str:
        """The realm that the sorted set of this name lists."""
        return unquote(index.decode().rpartition("}:all")[2].removeprefix(":"))

    def address(self, bot: str, member: str) -> Address:
        """The address that goes by this name in the indexes of a bot."""
        return addresses.decode(f"{quote(bot, safe='')}/{member}")

    def about(self, bot: str) -> tuple[int, bytes]:
        """The slot and the key of how a bot is laid out."""
        tag = f"{self.prefix}:{quote(bot, safe='')}"
        return slot_of(tag.encode()), f"{{{tag}}}:layout".encode()


def _index_of(tag: str, realm: str) -> bytes:
    return f"{tag}:all:{realm}".encode() if realm else f"{tag}:all".encode()


def slot_of(tag: bytes) -> int:
    """The hash slot of a hash tag, or of a key without one."""
    return binascii.crc_hqx(tag, 0) % SLOTS
