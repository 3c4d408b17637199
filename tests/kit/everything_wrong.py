"""All wrong stores: importing this registers them."""

from __future__ import annotations

from kit import wrong_accepting, wrong_chat, wrong_primitives, wrong_records, wrong_settling

ALL = (wrong_accepting, wrong_chat, wrong_primitives, wrong_records, wrong_settling)
