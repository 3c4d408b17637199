"""The Lua files of the package, as scripts that are called by their hash."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

_ALONE: Final = frozenset({"due"})
NAMES: Final = (
    "accept", "settle", "take_over", "acquire", "renew", "release", "force_release", "dead", "forget",
    "expire", "remember", "load", "read", "swap", "glance", "due",
)  # fmt: skip
_PLACES: Final = re.compile(r"^local ([A-Z_, ]+) = ([0-9, ]+)$\n", re.MULTILINE)
_INDEX: Final = re.compile(r"\[([A-Z][A-Z_]+)\]")


class Script(NamedTuple):
    """One script: its name, its text and the hash it is called by."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """A script by name: the common case before everything else, where there is one, then what is shared."""
    folder = files("hitherto.stores.redis") / "lua"
    parts = [name] if name in _ALONE else ["start", f"{name}.hot", "prelude", name]
    found = [folder / f"{part}.lua" for part in parts]
    text = "\n".join([part.read_text() for part in found if part.is_file()])
    text = _numbered(text)
    return Script(
        name, text.encode(), hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode()
    )


def _numbered(text: str) -> str:
    """The text with the names of places as numbers.

    As locals they would be captured by every function, and each capture makes the function slower to make.
    """
    places: dict[str, str] = {}
    for names, numbers in _PLACES.findall(text):
        places |= dict(zip(names.split(", "), numbers.split(", "), strict=True))
    return _INDEX.sub(lambda match: f"[{places[match[1]]}]", _PLACES.sub("", text))


@cache
def by_hash() -> dict[bytes, Script]:
    """Every script by its hash."""
    return {one.sha: one for one in map(script, NAMES)}


def called_by(packed: bytes) -> Script:
    """The script that a packed EVALSHA calls."""
    return by_hash()[packed.split(b"\r\n", 5)[4]]
