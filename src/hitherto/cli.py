"""The command line: ``hitherto COMMAND``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hitherto import __version__
from hitherto.demo import terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(
        prog="hitherto", description="Keeps the state of chat-bot conversations: look at it, and mend it."
    )
    parser.add_argument("--version", action="version", version=f"hitherto {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    demo = commands.add_parser("demo", help="talk to a small bot in the terminal")
    terminal.add_arguments(demo)
    demo.set_defaults(run=terminal.main)
    arguments = parser.parse_args(argv)
    code: int = arguments.run(arguments)
    return code
