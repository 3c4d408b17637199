"""Everything a bot knew about a conversation, up to this moment, kept."""

from __future__ import annotations

__version__ = "0.1.0"
