"""``make powerloss``: a workload on SQLite, cut off after every call to the disk; and every call failing."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from powerloss.run import errors, losses, recorded


def main() -> int:
    """Cut and fail everywhere; 1 if anything was lost that may not be, or nothing where something must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=150)
    parser.add_argument("--states", type=int, default=6000, help="crash states for each level of synchronous")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        for level in ("FULL", "NORMAL"):
            began = time.monotonic()
            log = recorded(Path(folder) / level, level, given.turns, given.seed)
            found = losses(log, Path(folder) / f"look-{level}", given.states, given.seed)
            print(f"{level}: {found}, {time.monotonic() - began:.0f} s", flush=True)
            for example in [*found.corrupt, *(found.lost if level == "FULL" else ())][:5]:
                print(f"  {example}", flush=True)
            bad |= bool(found.corrupt) or bool(found.lost) is (level == "FULL")
        for error in ("ENOSPC", "EIO"):
            for lasting in (1, 1_000_000):
                found = errors(Path(folder) / f"{error}-{lasting}", error, lasting)
                print(f"{error}, {'once' if lasting == 1 else 'lasting'}: {found}", flush=True)
                bad |= bool(found["wrong"])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
