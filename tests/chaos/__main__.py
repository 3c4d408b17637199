"""``make chaos ARGS="--store redis --minutes 10"``: the harness with servers of its own, killed too."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from chaos.parks import PARKS
from hitherto.cli.harming import add_wishes, told
from hitherto.testing.chaos.campaign import Wish, campaign


def main() -> int:
    """Run on the stores that are named, or on all, one after the other; the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--store", action="append", choices=PARKS, help="one of them, repeatable (all)")
    add_wishes(parser)
    arguments = parser.parse_args()
    codes = [one(name, arguments, len(arguments.store or PARKS) > 1) for name in arguments.store or PARKS]
    return max(codes)


def one(name: str, arguments: argparse.Namespace, several: bool) -> int:
    """One store."""
    with PARKS[name]() as park:
        wish = Wish(
            park.url, arguments.minutes, arguments.seed, _named(arguments.json, name, several),
            _named(arguments.html, name, several), arguments.workers, arguments.lease, arguments.slack,
            park.lossy, grace=2.5,
        )  # fmt: skip
        print(f"--- {name}", flush=True)
        return told(asyncio.run(campaign(wish, park.faults)))


def _named(path: Path | None, name: str, several: bool) -> Path | None:
    """A file for each store, when there are several."""
    return path if path is None or not several else path.with_stem(f"{path.stem}-{name}")


if __name__ == "__main__":
    sys.exit(main())
