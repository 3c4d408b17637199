"""How commands print: tables for people, JSON for programs, progress only to a terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

_BAR: Final = 24
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160), 0x202E, 0x2066, 0x2067, 0x2068)}


def add_json(command: argparse.ArgumentParser) -> None:
    """``--json``."""
    command.add_argument("--json", action="store_true", help="print JSON")


def show(value: Any) -> None:
    """One JSON text."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None, default=_plain))


def _plain(value: Any) -> Any:
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else str(value)


def safe(text: object) -> str:
    """Text as a terminal may show it: control characters and direction marks are spelled out."""
    return str(text).translate(_CONTROL)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns that line up, their heads first."""
    lines = [list(heads), *[[safe("" if cell is None else cell) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for number, line in enumerate(lines):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        print(bold(text) if number == 0 else text)


def bold(text: str) -> str:
    """Bold on a terminal that may have it."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def ago(now: float, then: float) -> str:
    """A duration for people."""
    seconds = max(now - then, 0.0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


class Progress:
    """How far it is, on standard error, when that is a terminal.

    A bar is drawn when the end is known: by *total*, or by *share*, which tells the part that is done.
    """

    def __init__(
        self, what: str, total: int | None = None, *, share: Callable[[], float] | None = None
    ) -> None:
        self._what, self._total, self._share = what, total, share
        self._began = time.monotonic()
        self._shown = 0.0
        self.done = 0

    def step(self, number: int = 1) -> None:
        """So much more is done."""
        self.done += number
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._shown > 0.1:
            self._shown = now
            print(f"\r{self._line(now - self._began)}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._shown:
            seconds = time.monotonic() - self._began
            print(f"\r{self._what}: {self.done:,} in {seconds:.0f} s\x1b[K", file=sys.stderr)

    def _line(self, seconds: float) -> str:
        of = f" of {self._total:,}" if self._total else ""
        rate = f", {self.done / seconds:,.0f}/s" if seconds >= 1 else ""
        share = self.done / self._total if self._total else self._share() if self._share else None
        if share is None:
            return f"{self._what}: {self.done:,}{rate}"
        share = min(share, 1.0)
        left = f", {seconds / share - seconds:.0f} s left" if seconds >= 1 and share > 0 else ""
        bar = "#" * round(share * _BAR)
        return f"{self._what}: [{bar:.<{_BAR}}] {share:4.0%} {self.done:,}{of}{rate}{left}"
