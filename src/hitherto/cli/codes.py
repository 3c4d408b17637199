"""Exit codes."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
PROBLEMS: Final = 4
INTERRUPTED: Final = 130
