"""The command line: ``hitherto COMMAND``, also ``python -m hitherto``.

Each module of this package adds its commands to the parser; a command is a function of the parsed arguments
that answers an exit code.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from hitherto import __version__
from hitherto.cli import (
    completion,
    examining,
    harming,
    importing,
    inspecting,
    mending,
    migrating,
    moving,
    reading,
)
from hitherto.cli.codes import FAILED, INTERRUPTED, USAGE
from hitherto.demo import starting
from hitherto.errors import HithertoError

_HELP: Final = """\
usage: hitherto COMMAND [options]            hitherto COMMAND --help says more

Keeps the state of chat-bot conversations. Look at it, mend it, move it.

{commands}
Where: --store URL (or HITHERTO_STORE) and --bot NAME (or HITHERTO_BOT).
A KEY is written as ls prints it: 7/7, with a dot before text: .room/7
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 problems found,
130 interrupted.
"""
_LINES: Final = (
    ("demo", "talk to a small bot and watch it"),
    ("inspect", "a page that shows a store, live"),
    ("ls, show, stats", "conversations: a list, one of them, how many are where"),
    ("release, clear", "free a stuck conversation; remove its record"),
    ("forget", "erase everything about a person or a conversation"),
    ("dead", "dead letters: ls, retry, drop"),
    ("export, import", "everything as JSON lines; import from other libraries"),
    ("snapshot, restore", "the same as a file that is whole or absent"),
    ("migrate", "bring a schema up to date, or print the SQL"),
    ("doctor", "is a store reachable, durable, up to date?"),
    ("check-store, chaos", "prove a store: the conformance kit; kills and faults"),
    ("graph, check", "draw a flow; check how flows are declared"),
    ("completion", "a completion script for bash, zsh or fish"),
)


class _Parser(argparse.ArgumentParser):
    """An argument parser that takes -100/7 for a key, and names the nearest command."""

    def __init__(self, *args: object, **keywords: object) -> None:
        super().__init__(*args, **keywords)  # type: ignore[arg-type]
        self._negative_number_matcher = re.compile(r"^-\d")

    def format_help(self) -> str:
        """All commands on one screen; argparse's own for each of them."""
        commands = completion.words_of(self)
        if self.prog != "hitherto":
            return super().format_help()
        shown = [(names, says) for names, says in _LINES if set(names.split(", ")) & commands.keys()]
        return _HELP.format(commands="".join(f"  {names:<19} {says}\n" for names, says in shown))

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and what was perhaps meant."""
        found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if found:
            near = difflib.get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), 1)
            hint = f"; did you mean {near[0]!r}?" if near else "; hitherto --help lists them"
            message = f"there is no command {found[1]!r}{hint}"
        self.exit(USAGE, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(prog="hitherto")
    top.add_argument("--version", action="version", version=f"hitherto {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    demo = commands.add_parser("demo", help="talk to a small bot and watch it")
    starting.add_arguments(demo)
    demo.set_defaults(run=starting.main)
    for module in (inspecting, reading, mending, moving, importing, migrating, examining, harming):
        module.add(commands)
    completion.add(commands, parser)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except (HithertoError, OSError, ValueError) as error:
        print(f"hitherto {arguments.command}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
