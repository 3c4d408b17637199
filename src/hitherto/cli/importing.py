"""``hitherto import``: conversations from JSON lines of ours, or from what other libraries have stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from hitherto.cli import moving
from hitherto.cli.codes import OK, PROBLEMS
from hitherto.cli.places import add_place, run
from hitherto.errors import HithertoError
from hitherto.importers import KEYS, Report, Rows, put
from hitherto.stores import Store

_SOURCES: Final = {
    "aiogram-redis": "aiogram", "aiogram-sqlite": "aiogram", "ptb-pickle": "ptb", "telebot-redis": "telebot",
}  # fmt: skip
_SAYS: Final = """\
FILE: JSON lines of `hitherto export`; or one of these, each only ever read:
aiogram-redis URL, aiogram-sqlite FILE, ptb-pickle FILE, telebot-redis URL.
It may be repeated. Exit code 4: something was not understood and left out."""


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "import", help="read conversations from JSON lines or from other libraries; may be repeated",
        description=_SAYS, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_place(command)
    command.add_argument("what", metavar="[KIND] FILE", nargs="*", help=f"KIND: {', '.join(_SOURCES)}")
    command.add_argument("--existing", choices=["keep", "replace"], default="keep",
                         help="conversations that are there already (default: keep)")  # fmt: skip
    command.add_argument("--keys", choices=KEYS, default="storage",
                         help="the drop-in storage's keys (default), or a keeper's")  # fmt: skip
    command.add_argument(
        "--bot-id", type=int, metavar="N", help="the number before the colon in the bot's token"
    )
    command.add_argument("--prefix", metavar="TEXT", help="what keys begin with (fsm, telebot)")
    command.add_argument("--separator", metavar="TEXT", default=":", help="what keys are joined with (:)")
    command.add_argument(
        "--leave-out", action="store_true", help="ptb-pickle: leave out objects of own classes"
    )
    command.add_argument("--dry-run", action="store_true", help="read and report, write nothing")
    command.set_defaults(run=lambda arguments: run(arguments, partial(_import, arguments=arguments)))


async def _import(store: Store, arguments: argparse.Namespace) -> int:
    kind, *rest = arguments.what or [""]
    if kind not in _SOURCES:
        if rest:
            raise HithertoError(f"{kind!r} is no kind of source; there are {', '.join(_SOURCES)}")
        return await moving.import_lines(store, arguments.bot, kind or None)
    if len(rest) != 1:
        raise HithertoError(f"{kind} takes one URL or FILE")
    report = Report()
    await put(
        store, arguments.bot or _SOURCES[kind], _rows(kind, rest[0], report, arguments), report,
        arguments.existing, dry=arguments.dry_run,
    )  # fmt: skip
    for line in report.lines():
        print(line, file=sys.stderr)
    return PROBLEMS if report.problems else OK


def _rows(kind: str, place: str, report: Report, arguments: argparse.Namespace) -> Rows:
    """What the source holds; each reader and its driver is imported when it is asked for."""
    if kind == "ptb-pickle":
        from hitherto.importers import ptb_pickle

        return ptb_pickle.read(place, report, leave_out=arguments.leave_out)
    options: dict[str, Any] = {
        "keys": arguments.keys, "bot_id": arguments.bot_id, "separator": arguments.separator
    }  # fmt: skip
    if arguments.prefix is not None:
        options["prefix"] = arguments.prefix
    from hitherto.importers import aiogram_redis, aiogram_sqlite, telebot_redis

    readers: dict[str, Callable[..., Rows]] = {
        "aiogram-redis": aiogram_redis.read,
        "aiogram-sqlite": aiogram_sqlite.read,
        "telebot-redis": telebot_redis.read,
    }
    return readers[kind](place, report, **options)
