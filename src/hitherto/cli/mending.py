"""Commands that mend: release, clear, forget, dead."""

from __future__ import annotations

import argparse
from typing import Any

from hitherto.addresses import Address, key_text
from hitherto.cli import output
from hitherto.cli.codes import NOT_FOUND
from hitherto.cli.places import add_key, add_place, address_of, bot_of, run, unknown
from hitherto.protocol import is_bare
from hitherto.stores import Store
from hitherto.stores.base import DEFAULT_TERMS


def add(commands: Any) -> None:
    """Add the commands of this module."""
    for name, work, says in (
        ("release", _release, "free a stuck conversation: fence whoever holds it"),
        ("clear", _clear, "remove a conversation's record"),
    ):
        command = commands.add_parser(name, help=says)
        add_place(command)
        add_key(command)
        command.set_defaults(
            run=lambda arguments, work=work: run(arguments, lambda store: work(store, arguments))
        )
    forget = commands.add_parser("forget", help="erase everything about a person or a conversation")
    add_place(forget)
    forget.add_argument("--key", metavar="KEY", help="this conversation")
    forget.add_argument("--user", metavar="ID", type=int, help="every conversation with this id in its key")
    forget.add_argument(
        "--yes", action="store_true", help="really do it; without it the keys are only listed"
    )
    forget.set_defaults(run=lambda arguments: run(arguments, lambda store: _forget(store, arguments)))
    dead = commands.add_parser("dead", help="dead letters: ls, retry, drop")
    verbs = dead.add_subparsers(dest="verb", metavar="VERB", required=True)
    ls = verbs.add_parser("ls", help="list them")
    add_place(ls)
    ls.add_argument("key", metavar="KEY", nargs="?", help="only of this conversation")
    output.add_json(ls)
    ls.set_defaults(run=lambda arguments: run(arguments, lambda store: _dead_ls(store, arguments)))
    for verb in ("retry", "drop"):
        command = verbs.add_parser(verb, help=f"{verb} one, or all of a conversation")
        add_place(command)
        add_key(command)
        command.add_argument("seq", metavar="SEQ", nargs="?", type=int)
        command.set_defaults(run=lambda arguments: run(arguments, lambda store: _dead(store, arguments)))


async def _release(store: Store, arguments: argparse.Namespace) -> int:
    address = address_of(arguments)
    if not (await store.load(address)).version:
        return await unknown(store, address)
    answer = await store.force_release(address, store.op(), DEFAULT_TERMS)
    freed = answer.status == "released"
    print(f"released; {answer.depth} events wait" if freed else "nobody holds it")
    return 0 if freed else NOT_FOUND


async def _clear(store: Store, arguments: argparse.Namespace) -> int:
    address = address_of(arguments)
    if not (await store.load(address)).version:
        return await unknown(store, address)
    if await store.read(address) is None:
        print("there is no record")
        return NOT_FOUND
    await store.clear(address.bot, address.key)
    print("cleared")
    return 0


async def _forget(store: Store, arguments: argparse.Namespace) -> int:
    if arguments.key is None and arguments.user is None:
        raise ValueError("forget whom? give --user ID or --key KEY")
    bot = bot_of(arguments)
    found = [address_of(arguments)] if arguments.key is not None else []
    if arguments.user is not None:
        progress = output.Progress("looked at")
        async for address in store.scan(bot, "all"):
            progress.step()
            parts = address.key if isinstance(address.key, tuple) else (address.key,)
            theirs = any(type(part) is int and part == arguments.user for part in parts)
            if theirs and not is_bare(await store.load(address)):
                found.append(address)
        progress.end()
    for address in found:
        if arguments.yes:
            await store.forget(address)
        print(f"{'forgotten' if arguments.yes else 'would forget'}: {output.safe(key_text(address.key))}")
    if found and not arguments.yes:
        print("nothing was done; say --yes to do it")
    return 0 if found else NOT_FOUND


async def _dead_ls(store: Store, arguments: argparse.Namespace) -> int:
    rows = []
    for address in await _with_dead(store, arguments):
        for letter in (await store.load(address)).dead:
            error = letter.error.splitlines()[-1] if letter.error else ""
            rows.append((key_text(address.key), letter.seq, letter.event_id, letter.attempts, error))
    heads = ("KEY", "SEQ", "EVENT", "ATTEMPTS", "ERROR")
    if arguments.json:
        output.show([dict(zip(map(str.lower, heads), row, strict=True)) for row in rows])
    else:
        output.table(heads, rows)
    return 0


async def _with_dead(store: Store, arguments: argparse.Namespace) -> list[Address]:
    if arguments.key is not None:
        return [address_of(arguments)]
    return [address async for address in store.scan(bot_of(arguments), "dead")]


async def _dead(store: Store, arguments: argparse.Namespace) -> int:
    address = address_of(arguments)
    document = await store.load(address)
    if not document.version:
        return await unknown(store, address)
    letters = [letter.seq for letter in document.dead]
    chosen = letters if arguments.seq is None else [seq for seq in letters if seq == arguments.seq]
    verb = store.retry_dead if arguments.verb == "retry" else store.drop_dead
    for seq in chosen:
        await verb(address, seq, store.op(), DEFAULT_TERMS)
    print(f"{len(chosen)} {'put back in line' if arguments.verb == 'retry' else 'dropped'}")
    return 0 if chosen else NOT_FOUND
