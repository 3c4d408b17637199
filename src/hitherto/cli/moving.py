"""Commands that move everything: export, snapshot, restore; and the reading of what they write.

The format is JSON lines, one conversation a line, readable and exact: the data's own JSON text stands in it
as it is stored, everything else of the document as base64.  Any store exports to and imports from it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from msgspec.structs import replace

from hitherto import codec
from hitherto.addresses import Address, decode, encode
from hitherto.chatstate import REALMS
from hitherto.cli.output import Progress
from hitherto.cli.places import add_place, bot_of, run
from hitherto.document import Document
from hitherto.errors import HithertoError
from hitherto.records import Stored
from hitherto.stores import Store

_AT_ONCE: Final = 200
_EPOCH_JUMP: Final = 2**32
_HEAD: Final = {"hitherto": "conversations", "format": 1}
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Document).decode


class _Line(msgspec.Struct, omit_defaults=True):
    address: str
    flow: str | None = None
    state: str | None = None
    version: int = 1
    expires_at: float | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    rest: str = ""


class _Address(msgspec.Struct):
    address: str


_read_line = msgspec.json.Decoder(_Line).decode
_read_address = msgspec.json.Decoder(_Address).decode


def add(commands: Any) -> None:
    """Add the commands of this module."""
    for name, says, work in (
        ("export", "write all conversations as JSON lines", _export),
        ("snapshot", "export to a file that is whole or absent", _snapshot),
        ("restore", "make the bot's conversations those of a snapshot", _restore),
    ):
        command = commands.add_parser(name, help=says)
        add_place(command)
        command.add_argument("file", metavar="FILE", nargs="?" if name == "export" else None)
        if name == "export":
            command.add_argument("--resume", action="store_true", help="go on with a FILE that was cut off")
        command.set_defaults(
            run=lambda arguments, work=work: run(arguments, lambda store: work(store, arguments))
        )


# ------------------------------------------------------------------------------------------------- out


async def _export(store: Store, arguments: argparse.Namespace) -> int:
    bot = bot_of(arguments)
    if arguments.file is None:
        await export(store, bot, sys.stdout.buffer)
        return 0
    path = Path(arguments.file)
    again = arguments.resume and path.exists()
    with path.open("r+b" if again else "wb") as out:
        await export(store, bot, out, _written(out, bot) if again else None)
    return 0


def _written(out: IO[bytes], bot: str) -> set[int] | None:
    """What a file holds that was cut off, its last line perhaps in the middle; it is left ready to go on."""
    first = out.readline()
    if not first:
        return None
    head = _parsed(first)
    if not isinstance(head, dict) or head.get("bot") != bot or head.get("format") != _HEAD["format"]:
        raise HithertoError(f"this is no export of {bot!r} to go on with; without --resume it is begun anew")
    found: set[int] = set()
    end = out.tell()
    for text in out:
        if not text.endswith(b"\n"):
            break
        found.add(hash(_read_address(text).address))
        end += len(text)
    out.seek(end)
    out.truncate()
    return found


async def _snapshot(store: Store, arguments: argparse.Namespace) -> int:
    target = Path(arguments.file)
    partial = target.with_name(target.name + ".partial")
    with partial.open("wb") as out:
        number = await export(store, bot_of(arguments), out)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(target)
    print(f"{number} conversations")
    return 0


async def export(store: Store, bot: str, out: IO[bytes], written: set[int] | None = None) -> int:
    """Write everything of a bot but what is *written* already; how many lines there are then."""
    if written is None:
        out.write(msgspec.json.encode({**_HEAD, "bot": bot}) + b"\n")
    progress = Progress("exported", await _expected(store, bot))
    async for batch in _batches(_everything(store, bot)):
        missing = [address for address in batch if not written or hash(encode(address)) not in written]
        documents = await asyncio.gather(*(store.load(address) for address in missing))
        for address, document in zip(missing, documents, strict=True):
            if document.version:
                out.write(_line(address, document) + b"\n")
        progress.step(len(batch))
    progress.end()
    return progress.done


async def _expected(store: Store, bot: str) -> int | None:
    """About how many there are, where somebody watches."""
    return sum(number for *_, number in await store.counts(bot)) if sys.stderr.isatty() else None


async def _everything(store: Store, bot: str) -> AsyncIterator[Address]:
    for kind in ("all", *REALMS):
        async for address in store.scan(bot, kind):
            yield address


async def _batches(addresses: AsyncIterator[Address]) -> AsyncIterator[list[Address]]:
    batch: list[Address] = []
    async for address in addresses:
        batch.append(address)
        if len(batch) >= _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _line(address: Address, document: Document) -> bytes:
    record = document.record
    rest = b64encode(_pack(replace(document, record=None, version=0))).decode()
    if record is None:
        return msgspec.json.encode(_Line(encode(address), rest=rest))
    data = msgspec.Raw(codec.join(record.fields))
    return msgspec.json.encode(
        _Line(encode(address), record.flow, record.state, record.version, record.expires_at, data, rest)
    )


# -------------------------------------------------------------------------------------------------- in


async def import_lines(store: Store, bot: str | None, file: str | None) -> int:
    """Read JSON lines from a file, or from standard input."""
    with _lines(file) as source:
        number = await load(store, bot, source)
    print(f"{number} conversations", file=sys.stderr)
    return 0


async def _restore(store: Store, arguments: argparse.Namespace) -> int:
    bot = bot_of(arguments)
    kept: set[int] = set()
    with _lines(arguments.file) as source:
        number = await load(store, bot, source, jump=_EPOCH_JUMP, kept=kept)
    progress = Progress("compared", number)
    async for batch in _batches(_everything(store, bot)):
        await asyncio.gather(
            *(store.forget(address) for address in batch if hash(encode(address)) not in kept)
        )
        progress.step(len(batch))
    progress.end()
    print(f"{number} conversations")
    return 0


@contextmanager
def _lines(name: str | None) -> Iterator[IO[bytes]]:
    if name is None:
        yield sys.stdin.buffer
    else:
        with open(name, "rb") as source:
            yield source


async def load(
    store: Store, bot: str | None, source: IO[bytes], *, jump: int = 0, kept: set[int] | None = None
) -> int:
    """Put every line's conversation into the store, under *bot* if named; repeating it changes nothing."""
    head = _parsed(source.readline())
    if not isinstance(head, dict) or head.get("format") != _HEAD["format"] or "hitherto" not in head:
        raise HithertoError("this is no export of hitherto's: its first line should say so")
    progress = Progress("imported", share=_share_of(source))
    batch: list[tuple[Address, Document]] = []
    for number, text in enumerate(source, 2):
        address, document = _conversation(text, bot, number)
        if kept is not None:
            kept.add(hash(encode(address)))
        batch.append((address, replace(document, epoch=document.epoch + jump)))
        if len(batch) >= _AT_ONCE:
            await _put(store, batch)
            progress.step(len(batch))
            batch = []
    await _put(store, batch)
    progress.step(len(batch))
    progress.end()
    return progress.done


def _share_of(source: IO[bytes]) -> Callable[[], float] | None:
    """How much of a file was read; of a pipe nobody knows."""
    try:
        size = os.fstat(source.fileno()).st_size
        return (lambda: source.tell() / size) if size and source.seekable() else None
    except OSError:
        return None


def _parsed(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None


def _conversation(text: bytes, bot: str | None, number: int) -> tuple[Address, Document]:
    try:
        line = _read_line(text)
        document = _unpack(b64decode(line.rest, validate=True))
        address = decode(line.address)
    except (msgspec.MsgspecError, ValueError) as error:
        raise HithertoError(f"line {number} cannot be read: {type(error).__name__}") from error
    if bytes(line.data) != b"null":
        fields = codec.split(bytes(line.data))
        record = Stored(line.flow, line.state, line.version, fields, line.expires_at)
        document = replace(document, record=record)
    return (address if not bot else address._replace(bot=bot)), document


async def _put(store: Store, batch: list[tuple[Address, Document]]) -> None:
    await asyncio.gather(*(_put_one(store, address, document) for address, document in batch))


async def _put_one(store: Store, address: Address, document: Document) -> None:
    """Overwrite one conversation: nobody holds it, and an epoch never goes back."""

    def placed(before: Document, now: float) -> tuple[Document, None]:
        epoch = max(before.epoch, document.epoch) + (before.lease is not None)
        inbox = tuple([replace(entry, claimed=False, lone_until=None) for entry in document.inbox])
        after = replace(document, epoch=epoch, lease=None, inbox=inbox, version=before.version)
        if after == before:
            return before, None
        return replace(after, version=before.version + 1), None

    await store.transact(address, placed)
