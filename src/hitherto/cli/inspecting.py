"""``hitherto inspect``: the inspector over any store, served on this machine."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from hitherto.cli.codes import OK
from hitherto.cli.reading import flows_of
from hitherto.errors import FlowWarning, StoreWarning, redact
from hitherto.flows import Flow
from hitherto.stores import Store, open_store


def add(commands: Any) -> None:
    """Add the command."""
    inspect = commands.add_parser("inspect", help="a page that shows a store, live")
    inspect.add_argument("url", metavar="URL", nargs="?", default=os.environ.get("HITHERTO_STORE"))
    inspect.add_argument("--bot", "-b", metavar="NAME", default=os.environ.get("HITHERTO_BOT"))
    inspect.add_argument("--write", action="store_true", help="allow actions; each is written to --audit")
    inspect.add_argument(
        "--audit", metavar="FILE", default="hitherto-audit.jsonl", help="with --write (hitherto-audit.jsonl)"
    )
    inspect.add_argument(
        "--module", "-m", metavar="MODULE:FLOW", nargs="+", default=[], help="flows to draw maps of"
    )
    inspect.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    inspect.add_argument("--port", type=int, default=0, help="port to listen on (any that is free)")
    inspect.set_defaults(run=_inspect)


def _check_there(store: Store) -> None:
    """Refuse to look at a file that opening would only now create."""
    path = getattr(store, "path", None)
    if path is not None and path != ":memory:" and not os.path.exists(path):
        raise ValueError(f"there is no file {path}")


def _inspect(arguments: argparse.Namespace) -> int:
    from hitherto.inspector import audit
    from hitherto.inspector.serving import serve

    if not arguments.url:
        raise ValueError("which store? give its URL (sqlite:///bot.db) or set HITHERTO_STORE")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        warnings.simplefilter("ignore", FlowWarning)
        flows: list[type[Flow]] = [flow for name in arguments.module for flow in flows_of(name)]
        store = open_store(arguments.url)
        _check_there(store)
        log = audit.to_file(Path(arguments.audit)) if arguments.write else None

        def say(link: str) -> None:
            print(f"{redact(arguments.url)}, {'may write' if arguments.write else 'read only'}")
            if log is not None:
                print(f"actions are written to {arguments.audit}")
            if arguments.host not in ("127.0.0.1", "::1", "localhost"):
                print(
                    "warning: others on the network can reach this, and nothing is encrypted", file=sys.stderr
                )
            print(f"\n  {link}\n\nThe link lets in whoever has it. Ctrl-C ends this.", flush=True)

        try:
            serve(
                store, bot=arguments.bot, flows=flows, write=arguments.write,
                host=arguments.host, port=arguments.port, say=say,
            )  # fmt: skip
        finally:
            if log is not None:
                audit.LOGGER.removeHandler(log)
                log.close()
    return OK
