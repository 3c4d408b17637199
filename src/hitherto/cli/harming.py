"""The command that harms a store's users to see whether it keeps its promises: chaos."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from hitherto.cli.codes import OK, PROBLEMS
from hitherto.errors import HithertoError


def add(commands: Any) -> None:
    """Add the command."""
    chaos = commands.add_parser("chaos", help="kill and pause workers on a store, cut the way there, judge")
    chaos.add_argument("url", metavar="URL", help="it works under a bot of its own and erases it")
    add_wishes(chaos)
    chaos.set_defaults(run=_chaos)


def add_wishes(command: argparse.ArgumentParser) -> None:
    """How long, by which seed, and where the report goes."""
    command.add_argument("--minutes", type=_positive, default=1.0, metavar="N", help="how long (1)")
    command.add_argument("--seed", type=int, metavar="N", help="repeat the schedule of another run")
    command.add_argument("--workers", type=int, default=6, metavar="N", help="processes (6)")
    command.add_argument("--lease", type=_positive, default=1.0, metavar="S", help="seconds (1)")
    command.add_argument(
        "--slack", type=float, default=0.0, metavar="S",
        help="how much later than lease + sweep + 2 s a conversation may be recovered (0)",
    )  # fmt: skip
    command.add_argument("--json", type=Path, metavar="FILE", help="the report as JSON")
    command.add_argument("--html", type=Path, metavar="FILE", help="the report as a page with plots")


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: more than zero")
    return number


def _chaos(arguments: argparse.Namespace) -> int:
    if os.name != "posix":
        raise HithertoError("chaos pauses and kills processes by signals: it needs Linux or macOS")
    from hitherto.testing.chaos.campaign import Wish, campaign

    wish = Wish(
        arguments.url, arguments.minutes, arguments.seed, arguments.json, arguments.html,
        arguments.workers, arguments.lease, arguments.slack,
    )  # fmt: skip
    report = asyncio.run(campaign(wish))
    return told(report)


def told(report: Any) -> int:
    """Print the verdict; the exit code."""
    print(report)
    for text in report.violations:
        print(f"VIOLATION  {text}")
    return PROBLEMS if report.violations else OK
