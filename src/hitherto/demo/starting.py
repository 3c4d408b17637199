"""``hitherto demo``: the playground in a browser, or the chat in the terminal where no page can be shown."""

from __future__ import annotations

import argparse
import sys
import warnings
from importlib.util import find_spec

from hitherto.demo import terminal
from hitherto.errors import HithertoError, MissingExtra, StoreWarning

STORE = "sqlite:///hitherto-demo.db"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--terminal", action="store_true", help="chat in the terminal instead of on a page")
    parser.add_argument(
        "--page", action="store_true", help="serve the page even if nobody is at the terminal"
    )
    parser.add_argument("--port", type=int, default=0, help="where to serve it (default: any that is free)")
    parser.add_argument("--no-open", action="store_true", help="only print the page's address")
    parser.add_argument(
        "--say", action="append", metavar="TEXT", help="say this in the terminal and leave; may be repeated"
    )
    parser.add_argument("--store", default=STORE, metavar="URL", help=f"where it is kept (default: {STORE})")


def main(arguments: argparse.Namespace) -> int:
    """Start what can be shown; the exit code."""
    warnings.simplefilter("ignore", StoreWarning)
    if not wants_page(arguments):
        return terminal.main(arguments)
    if missing_package() is not None:
        raise MissingExtra("the page of the demo", "inspector")
    from hitherto.demo import page

    try:
        open_it = page.can_open() and not arguments.no_open and sys.stdin.isatty()
        return page.main(arguments.store, arguments.port, open_it=open_it)
    except HithertoError as error:
        print(f"hitherto demo: {error}", file=sys.stderr)
        return 1


def wants_page(arguments: argparse.Namespace) -> bool:
    """Whether it is to be a page: not where there is no way to show one, unless it is asked for."""
    if arguments.page:
        return True
    if arguments.terminal or arguments.say is not None or arguments.store.startswith("memory:"):
        return False
    return sys.stdin.isatty() and missing_package() is None


def missing_package() -> str | None:
    """What the page needs and is not installed."""
    return next((name for name in ("starlette", "uvicorn") if find_spec(name) is None), None)
