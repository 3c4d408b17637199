"""What users see, as the type checkers see it; checked by mypy and pyright, never run."""

from __future__ import annotations
