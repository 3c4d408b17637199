"""The Lua files of the package, as scripts that are called by their hash."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

_ALONE: Final = frozenset({"due"})
NAMES: Final = (
    "accept", "settle", "take_over", "acquire", "renew", "release", "force_release", "dead", "forget",
    "expire", "remember", "load", "read", "swap", "filed", "due",
)  # fmt: skip


class Script(NamedTuple):
    """One script: its name, its text and the hash it is called by."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """A script by name, its file put behind the prelude."""
    folder = files(__package__) / "lua"
    text = (folder / f"{name}.lua").read_bytes()
    if name not in _ALONE:
        text = (folder / "prelude.lua").read_bytes() + b"\n" + text
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def by_hash() -> dict[bytes, Script]:
    """Every script by its hash."""
    return {one.sha: one for one in map(script, NAMES)}
