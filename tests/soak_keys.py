"""A long search for two addresses with one text: `python tests/soak_keys.py --pairs 1000000`.

Three pairs of four are a random hostile address and a twin made from it by one small change (a type, a
separator, an escape, a normal form, ...), the fourth is two unrelated ones. Every address must decode back
exactly, types included; the texts of a pair must be equal if and only if its addresses are.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

from hitherto.addresses import Address, decode, encode, key_text

PIECES = [
    *":{}/%[]*?\n\t\x00 ._~=-+'\"\\()#@&;,|<>$^`!0179aAzZ",
    *("%2F", "%25", "%", "..", "//", "()", "0x1", "null", "true", "1.0", "1", "business:", "guest", "dm:1"),
    *("é", "e\u0301", "\u00c5", "\u212b", "ﬁ", "\u202e", "\u200f", "א", "\ufeff", "\u2028", "\U0001f600"),
    *("\uffff", "\U0001ffff", "\U0002a700", "\U000e0001", "\U000f0000", "\U0010ffff", "\ue000", "\ud7ff"),
]
SPECIAL: list[Any] = [
    0,
    1,
    -1,
    7,
    True,
    False,
    None,
    0.0,
    -0.0,
    1.0,
    1e16,
    5e-324,
    "",
    "1",
    "True",
    "None",
    2**63,
    -(2**2048),
]


def identity(thing: Any) -> str:
    """A text that two things share only if they are equal in value and type."""
    if isinstance(thing, tuple):
        return f"({','.join(identity(part) for part in thing)})"
    return f"{type(thing).__name__}:{thing!r}"


def hostile_text(rng: random.Random) -> str:
    """A short text of separators, escapes and odd characters; one in five hundred is over 10 kB."""
    chance = rng.random()
    if chance < 0.002:
        return rng.choice(PIECES) * 10_240
    if chance < 0.15:
        return chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
    return "".join(rng.choices(PIECES, k=rng.randrange(5)))


def hostile_scalar(rng: random.Random) -> Any:
    """A part of a key."""
    chance = rng.random()
    if chance < 0.5:
        return hostile_text(rng)
    if chance < 0.8:
        return rng.choice(SPECIAL)
    return rng.randrange(-(2**52), 2**52) if chance < 0.9 else rng.random() * 10.0 ** rng.randrange(-30, 30)


def hostile_address(rng: random.Random) -> Address:
    """An address, every part of it hostile."""
    key: Any = tuple(hostile_scalar(rng) for _ in range(rng.randrange(4)))
    if rng.random() < 0.2:
        key = hostile_scalar(rng)
    return Address(hostile_text(rng), hostile_text(rng), key)


def _other_type(part: Any, rng: random.Random) -> Any:
    number = part if isinstance(part, int | float) and abs(part) < 2**52 else 1
    return rng.choice(
        [str(part)[:50], int(number), float(number), bool(number), None, -number, key_text((part,))]
    )


def _other_text(part: Any, rng: random.Random) -> Any:
    text = part if isinstance(part, str) else str(part)[:50]
    changes: list[Callable[[str], str]] = [
        lambda text: quote(text, safe=""),
        lambda text: unquote(text),
        lambda text: unicodedata.normalize("NFC", text),
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: unicodedata.normalize("NFKC", text),
        str.swapcase,
        str.strip,
        lambda text: text + "\x00",
        lambda text: "." + text,
        lambda text: text[::-1],
    ]
    changed = rng.choice(changes)(text)
    return changed if changed.isascii() else changed.encode(errors="replace").decode()


def twin(address: Address, rng: random.Random) -> Address:
    """The address with one small change, which may change nothing."""
    bot, realm, key = address
    parts = key if isinstance(key, tuple) else (key,)
    place = rng.randrange(len(parts)) if parts else 0
    before, part, after = parts[:place], parts[place : place + 1], parts[place + 1 :]
    one = part[0] if part else ""
    texts = [one if isinstance(one, str) else key_text((one,)), *(str(other)[:50] for other in after[:1])]
    ways: list[Callable[[], Address]] = [
        lambda: Address(bot, realm, (*before, _other_type(one, rng), *after)),
        lambda: Address(bot, realm, (*before, _other_text(one, rng), *after)),
        lambda: Address(bot, realm, (*before, rng.choice("/:.").join(texts), *after[1:])),
        lambda: Address(bot, realm, (*before, *texts[0].split(rng.choice("/:."), 1), *after)),
        lambda: Address(
            bot, realm, parts if key is not parts else (parts[0] if len(parts) == 1 else (*parts, ""))
        ),
        lambda: Address(bot, realm, tuple(reversed(parts))),
        lambda: Address(realm, bot, key),
        lambda: Address(f"{bot}/{realm}", "", key),
        lambda: Address(bot, "", (realm, *parts)),
        lambda: Address(_other_text(bot, rng), realm, key),
        lambda: Address(bot, _other_text(realm, rng), key),
    ]
    return rng.choice(ways)()


def soak(pairs: int, seed: int) -> tuple[int, int, int]:
    """The numbers of differing pairs tried, of collisions, and of addresses not decoded back exactly."""
    rng = random.Random(seed)
    tried = collisions = inexact = 0
    while tried < pairs:
        one = hostile_address(rng)
        other = twin(one, rng) if rng.random() < 0.75 else hostile_address(rng)
        names = identity(one), identity(other)
        texts = encode(one), encode(other)
        tried += names[0] != names[1]
        collisions += (names[0] == names[1]) != (texts[0] == texts[1])
        inexact += sum(identity(decode(text)) != name for text, name in zip(texts, names, strict=True))
    return tried, collisions, inexact


def main() -> int:
    """Soak, say what was found, and fail if there was anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=20_260_824)
    given = parser.parse_args()
    began = time.perf_counter()
    tried, collisions, inexact = soak(given.pairs, given.seed)
    took = time.perf_counter() - began
    print(f"{tried} pairs of different addresses, {collisions} collisions, {inexact} inexact, {took:.0f} s")
    return 1 if collisions or inexact or tried < given.pairs else 0


if __name__ == "__main__":
    sys.exit(main())
