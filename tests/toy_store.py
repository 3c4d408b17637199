"""The smallest store there can be: the five primitives over a dict, and nothing else.

Everything a store promises follows from them, as ``tests/kit`` proves: read it before you write your own.
Documents are kept as bytes, which is what a real store would send somewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from hitherto.addresses import Address, decode, encode
from hitherto.protocol import EMPTY, Document
from hitherto.stores.base import Kind, Store, is_filed

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Document).decode


class ToyStore(Store):
    """Bytes in a dict, under the text of their address, each with its version."""

    async def open(self) -> None:
        """Connect here; twice does nothing."""
        self.rows: dict[str, tuple[int, bytes]] = getattr(self, "rows", {})

    async def close(self) -> None:
        """Let go of the connection here; the rows stay."""

    async def load(self, address: Address) -> Document:
        """What is kept, or the empty document."""
        row = self.rows.get(encode(address))
        return EMPTY if row is None else _unpack(row[1])

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        """Compare and replace with nobody in between: here as nothing awaits, elsewhere by the database."""
        text = encode(address)
        version, _ = self.rows.get(text, (0, b""))
        if version == expected_version:
            self.rows[text] = (document.version, _pack(document))
        return version == expected_version

    async def scan(self, bot: str, kind: Kind) -> AsyncIterator[Address]:
        """Look at everything; a real store asks an index."""
        for text, (_, packed) in list(self.rows.items()):
            address = decode(text)
            if address.bot == bot and is_filed(address, _unpack(packed), kind, self.clock()):
                yield address
