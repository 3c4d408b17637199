"""Commands that only read: ls, show, stats, graph, check."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import warnings
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from hitherto import maps
from hitherto.addresses import decode, key_text
from hitherto.cli import output
from hitherto.cli.codes import PROBLEMS
from hitherto.cli.places import add_key, add_place, address_of, bot_of, run, unknown
from hitherto.codec import decode as decode_fields
from hitherto.document import Document, Entry
from hitherto.errors import FlowError, FlowWarning, HithertoError
from hitherto.flows import Flow, FlowMeta, spec
from hitherto.protocol import depth, is_busy, live_record
from hitherto.stores import Store
from hitherto.stores.base import Listed


def add(commands: Any) -> None:
    """Add the commands of this module."""
    ls = commands.add_parser("ls", help="list conversations")
    add_place(ls)
    ls.add_argument("--flow", help="only those in this flow; '' for in none")
    ls.add_argument("--state", help="only those in this state of it")
    ls.add_argument("--dead", action="store_true", help="only those with dead letters")
    ls.add_argument("--limit", type=int, default=50, help="at most so many (50)")
    ls.add_argument("--after", default="", metavar="CURSOR", help="go on behind this line")
    output.add_json(ls)
    ls.set_defaults(run=lambda arguments: run(arguments, lambda store: _ls(store, arguments)))
    show = commands.add_parser("show", help="everything about one conversation")
    add_place(show)
    add_key(show)
    show.add_argument("--events", action="store_true", help="show the waiting events' contents too")
    output.add_json(show)
    show.set_defaults(run=lambda arguments: run(arguments, lambda store: _show(store, arguments)))
    stats = commands.add_parser("stats", help="how many conversations are where")
    add_place(stats)
    output.add_json(stats)
    stats.set_defaults(run=lambda arguments: run(arguments, lambda store: _stats(store, arguments)))
    graph = commands.add_parser("graph", help="draw a flow: mermaid, dot, table, svg or png")
    graph.add_argument("flow", metavar="MODULE:FLOW")
    graph.add_argument("--format", "-f", default="mermaid", choices=["mermaid", "dot", "table", "svg", "png"])
    graph.add_argument("--output", "-o", metavar="FILE", help="write there instead")
    graph.set_defaults(run=_graph)
    check = commands.add_parser("check", help="check the declaration of flows")
    check.add_argument("flow", metavar="MODULE[:FLOW]")
    output.add_json(check)
    check.set_defaults(run=_check)


async def _ls(store: Store, arguments: argparse.Namespace) -> int:
    bot, now = bot_of(arguments), await store.now()
    listed = await (_dying if arguments.dead else _page)(store, bot, arguments, arguments.after)
    if arguments.json:
        output.show([{**_plain(one), "key": key_text(one.key)} for one in listed])
        return 0
    rows = [
        (
            key_text(one.key), one.flow, one.state, one.pending or "", one.dead or "",
            "held" if one.lease_until and one.lease_until > now else "", output.ago(now, one.touched),
        )
        for one in listed
    ]  # fmt: skip
    output.table(("KEY", "FLOW", "STATE", "WAITING", "DEAD", "LEASE", "TOUCHED"), rows)
    if len(listed) == arguments.limit:
        print(f"more: --after {listed[-1].cursor}")
    return 0


async def _page(store: Store, bot: str, arguments: argparse.Namespace, after: str) -> list[Listed]:
    return await store.browse(
        bot, flow=arguments.flow, state=arguments.state, after=after, limit=arguments.limit
    )


async def _dying(store: Store, bot: str, arguments: argparse.Namespace, after: str) -> list[Listed]:
    """The next ones that have dead letters, however far they are apart."""
    found: list[Listed] = []
    progress = output.Progress("looked at")
    while len(found) < arguments.limit and (page := await _page(store, bot, arguments, after)):
        found += [one for one in page if one.dead]
        after = page[-1].cursor
        progress.step(len(page))
    progress.end()
    return found[: arguments.limit]


def _plain(listed: Any) -> dict[str, Any]:
    return {name: getattr(listed, name) for name in listed.__struct_fields__}


async def _show(store: Store, arguments: argparse.Namespace) -> int:
    address, now = address_of(arguments), await store.now()
    document = await store.load(address)
    if not document.version:
        return await unknown(store, address)
    described = describe(document, now, contents=arguments.events)
    if arguments.json:
        output.show(described)
        return 0
    for name, value in described.items():
        if isinstance(value, list):
            print(f"{output.bold(name)}: {len(value)}")
            for one in value:
                print(f"  {output.safe(one)}")
        else:
            print(f"{output.bold(name)}: {output.safe(value)}")
    return 0


def describe(document: Document, now: float, *, contents: bool = False) -> dict[str, Any]:
    """A document as plain values, without the contents of events unless asked."""
    record, lease = live_record(document, now), document.lease
    return {
        "flow": None if record is None else record.flow,
        "state": None if record is None else record.state,
        "data": None if record is None else decode_fields(record.fields),
        "version": document.version,
        "epoch": document.epoch,
        "lease": None
        if lease is None
        else {
            "owner": lease.owner,
            "alive": is_busy(document, now),
            "seconds": round(lease.deadline - now, 1),
        },
        "waiting": depth(document),
        "inbox": [_entry(entry, now, contents) for entry in document.inbox],
        "dead": [_letter(letter, contents) for letter in document.dead],
        "seen": list(document.seen),
        "touched": _time(document.touched),
    }


def _entry(entry: Entry, now: float, contents: bool) -> dict[str, Any]:
    what = "lone" if entry.lone_until is not None else "running" if entry.claimed else "waiting"
    shown: dict[str, Any] = {
        "seq": entry.seq, "id": entry.event_id, "is": what, "attempts": entry.attempts,
        "accepted": _time(entry.accepted_at), "bytes": len(entry.payload),
    }  # fmt: skip
    if entry.not_before > now:
        shown["in"] = round(entry.not_before - now, 1)
    if contents:
        shown["event"] = entry.payload.decode()
    return shown


def _letter(letter: Any, contents: bool) -> dict[str, Any]:
    shown = {
        "seq": letter.seq, "id": letter.event_id, "attempts": letter.attempts, "error": letter.error,
        "died": _time(letter.died_at), "bytes": len(letter.payload),
    }  # fmt: skip
    if contents:
        shown["event"] = letter.payload.decode()
    return shown


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


async def _stats(store: Store, arguments: argparse.Namespace) -> int:
    bot = bot_of(arguments)
    counts = await store.counts(bot)
    others = {}
    for kind in ("lease", "pending", "due", "dead"):
        others[kind] = sum([1 async for _ in store.scan(bot, kind)])
    if arguments.json:
        places = [{"flow": flow, "state": state, "conversations": n} for flow, state, n in counts]
        output.show({"places": places, **others})
        return 0
    output.table(("FLOW", "STATE", "CONVERSATIONS"), counts)
    print(", ".join(f"{kind}: {number}" for kind, number in others.items()))
    return 0


# ------------------------------------------------------------------------------------------------ flows


def flows_of(text: str) -> list[type[Flow]]:
    """The flow that ``module:Flow`` names, or all that a module declares."""
    module_name, _, name = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise HithertoError(f"{module_name} cannot be imported: {error}") from error
    found: list[type[Flow]] = [
        value
        for value in vars(module).values()
        if isinstance(value, FlowMeta)
        and issubclass(value, Flow)
        and value is not Flow
        and value.__module__ == module.__name__
    ]
    chosen = [flow for flow in found if not name or flow.__name__ == name]
    if not chosen:
        known = ", ".join(flow.__name__ for flow in found) or "none"
        raise HithertoError(f"{module_name} has no flow {name or 'at all'}; it has {known}")
    return chosen


def _graph(arguments: argparse.Namespace) -> int:
    flow = flows_of(arguments.flow)[0]
    kind = arguments.format
    if kind == "svg":
        drawn = (maps.svg(spec(flow), standalone=True) + "\n").encode()
    elif kind == "png":
        drawn = _pixels(format(flow, "dot"))
    else:
        drawn = (format(flow, kind) + "\n").encode()
    if arguments.output:
        Path(arguments.output).write_bytes(drawn)
    else:
        sys.stdout.buffer.write(drawn)
    return 0


def _pixels(dot: str) -> bytes:
    """What Graphviz makes of it."""
    program = shutil.which("dot")
    if program is None:
        raise HithertoError(
            "png needs Graphviz's dot: install graphviz, or use --format svg, which needs nothing"
        )
    done = subprocess.run([program, "-Tpng"], input=dot.encode(), capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise HithertoError(f"Graphviz could not draw it: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _check(arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    flows: list[type[Flow]] = []
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always", FlowWarning)
        try:
            flows = flows_of(arguments.flow)
        except FlowError as error:
            problems = [str(error), *error.problems][1:] or [str(error)]
    said = [str(doubt.message) for doubt in doubts if issubclass(doubt.category, FlowWarning)]
    names = [spec(flow).name for flow in flows]
    if arguments.json:
        output.show({"flows": names, "problems": problems, "warnings": said})
    else:
        for name in names:
            print(f"{name}: declared soundly")
        for problem in problems:
            print(f"problem: {problem}")
        for doubt in said:
            print(f"warning: {doubt}")
    return PROBLEMS if problems or said else 0


def key_of(cursor: str) -> str:
    """The key's part of an address's text."""
    return key_text(decode(cursor).key)
