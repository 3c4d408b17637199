"""Commands that examine a store: doctor, check-store."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import time
import warnings
from typing import Any, Final, Literal

import msgspec

from hitherto import __version__
from hitherto.addresses import Address
from hitherto.cli import output
from hitherto.cli.codes import OK, PROBLEMS
from hitherto.errors import HithertoError, MissingExtra, StoreError, StoreWarning, redact
from hitherto.stores import Store, open_store

_BOT: Final = "hitherto-doctor"
_PATIENCE: Final = 20.0
_SKEW: Final = 2.0
_ROOM: Final = 20_000  # more than the pages that are there have left, so that a full disk shows
_MARKS: Final = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    level: Literal["ok", "warning", "problem"]
    says: str


def add(commands: Any) -> None:
    """Add the commands of this module."""
    doctor = commands.add_parser("doctor", help="is a store reachable, durable, up to date?")
    doctor.add_argument("url", metavar="URL")
    doctor.add_argument("--read-only", action="store_true", help="do not try to write")
    doctor.add_argument("--strict", action="store_true", help="exit with 4 for warnings too")
    output.add_json(doctor)
    doctor.set_defaults(run=_doctor)
    check = commands.add_parser("check-store", help="the conformance kit on a store, with a report")
    check.add_argument("url", metavar="URL", help="it works under bots of its own and erases them")
    check.add_argument("--only", default="", metavar="TEXT", help="clauses with this in their name")
    check.add_argument("--examples", type=int, default=50, metavar="N", help="lockstep examples (50)")
    output.add_json(check)
    check.set_defaults(run=_check_store)


# --------------------------------------------------------------------------------------------------- doctor


def _doctor(arguments: argparse.Namespace) -> int:
    found = asyncio.run(examined(arguments.url, write=not arguments.read_only))
    levels = {finding.level for finding in found}
    sick = "problem" in levels or (arguments.strict and "warning" in levels)
    if arguments.json:
        output.show({"url": redact(arguments.url), "healthy": not sick, "findings": found})
    else:
        for finding in found:
            print(f"{_MARKS[finding.level]}  {finding.what}: {output.safe(finding.says)}")
    return PROBLEMS if sick else OK


async def examined(url: str, *, write: bool = True) -> list[Finding]:
    """Everything that can be told about the store of this URL; it raises nothing."""
    found = [Finding("versions", "ok", f"hitherto {__version__}, Python {platform.python_version()}")]
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always", StoreWarning)
        try:
            store = open_store(url)
            async with asyncio.timeout(_PATIENCE):
                await store.open()
        except (HithertoError, OSError, ValueError) as error:
            return [*found, Finding("open", "problem", _told(error))]
    found.append(Finding("open", "ok", "it can be opened"))
    found += [
        Finding("set-up", "warning", str(doubt.message))
        for doubt in doubts
        if issubclass(doubt.category, StoreWarning)
    ]
    try:
        found += await _inside(store, write)
    except (HithertoError, OSError) as error:
        found.append(Finding("use", "problem", _told(error)))
    finally:
        await store.close()
    return found


def _told(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_PATIENCE:g} s; is the address right, and is a firewall in between?"
    kind = "" if isinstance(error, StoreError | MissingExtra) else f"{type(error).__name__}: "
    return f"{kind}{error}"


async def _inside(store: Store, write: bool) -> list[Finding]:
    facts = await store.facts()
    found = [
        Finding("software", "ok", facts.software),
        Finding("schema", "ok", facts.schema),
        Finding("lost in a crash", "ok", facts.lost_in_a_crash),
        await _clock(store),
    ]
    if write:
        found.append(await _trial(store))
    return found


async def _clock(store: Store) -> Finding:
    """The store's clock beside this machine's: leases go by the first, logs by the second."""
    before = time.time()
    theirs = await store.now()
    skew = theirs - (before + time.time()) / 2
    if abs(skew) <= _SKEW:
        return Finding("clock", "ok", f"it agrees with this machine's to {abs(skew):.1f} s")
    way = "ahead of" if skew > 0 else "behind"
    return Finding(
        "clock",
        "warning",
        f"the store's clock is {abs(skew):.0f} s {way} this machine's; leases go by the store's alone and "
        "stay right, but what you compare by time will not: set the clocks by NTP",
    )


async def _trial(store: Store) -> Finding:
    """Write, read and erase one conversation of a bot that nobody has."""
    key = ("doctor", int(time.time() * 1000))
    value = {"when": time.time(), "large": 2**70, "text": "\x00é😀", "room": "x" * _ROOM}
    began = time.perf_counter()
    await store.set_data(_BOT, key, value)
    wrote = time.perf_counter() - began
    back = await store.get_data(_BOT, key)
    await store.forget(Address(_BOT, "", key))
    if back != value:
        return Finding(
            "trial", "problem", "what was written did not come back as it was: do not use this store"
        )
    return Finding("trial", "ok", f"a write took {wrote * 1000:.1f} ms, and came back exactly")


# ---------------------------------------------------------------------------------------------- check-store


def _check_store(arguments: argparse.Namespace) -> int:
    try:
        from hitherto.testing import checking
    except ImportError as error:
        raise MissingExtra("check-store", "testing") from error
    warnings.simplefilter("ignore", StoreWarning)
    open_store(arguments.url)
    total = len(checking.names_of(checking.contract_of(arguments.url), arguments.only))
    progress = output.Progress("clauses tried", total)
    found = []
    for one in checking.check(arguments.url, only=arguments.only, examples=arguments.examples):
        found.append(one)
        progress.step()
        if not arguments.json and not one.kept:
            print(f"BROKEN  {one.clause}\n        {one.sentence}\n{_indented(one.error)}")
    progress.end()
    broken = checking.failures(found)
    if arguments.json:
        output.show(
            {"url": redact(arguments.url), "tried": len(found), "broken": len(broken), "clauses": found}
        )
    else:
        print(f"{len(found) - len(broken)} of {len(found)} clauses are kept")
    if not found:
        print(f"hitherto check-store: no clause has {arguments.only!r} in its name", file=sys.stderr)
    return PROBLEMS if broken or not found else OK


def _indented(text: str) -> str:
    return "\n".join(f"        {output.safe(line)}" for line in text.splitlines())
