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
from hitherto.cli import mending, moving, reading
from hitherto.demo import terminal
from hitherto.errors import HithertoError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
INTERRUPTED: Final = 130

_EPILOG: Final = """\
Where: --store URL (or HITHERTO_STORE) and --bot NAME (or HITHERTO_BOT).
A KEY is written as ls prints it: 7/7, with a dot before text: .room/7
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 problems found, 130 interrupted.
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser that takes -100/7 for a key, and names the nearest command."""

    def __init__(self, *args: object, **keywords: object) -> None:
        super().__init__(*args, **keywords)  # type: ignore[arg-type]
        self._negative_number_matcher = re.compile(r"^-\d")

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
    top = _Parser(
        prog="hitherto",
        description="Keeps the state of chat-bot conversations. Look at it, move it, mend it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hitherto {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    demo = commands.add_parser("demo", help="talk to a small bot")
    terminal.add_arguments(demo)
    demo.set_defaults(run=terminal.main)
    for module in (reading, mending, moving):
        module.add(commands)
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
