"""Where one conversation lives: its address, and the one text every store keeps it under.

An `Address` is (bot, realm, key). `encode` writes it as text and `decode` reads it back::

    Address("my_bot", "", (-100123, 7))               my_bot//-100123/7
    Address("my_bot", "thread", ("guest", 7.0))       my_bot/thread/.guest/7.0
    Address("my_bot", "", "room 4")                   my_bot//=.room%204

bot and realm come first, then the key, all separated by `/`. In the key

* an int is its digits (`0x` and hexadecimal digits beyond 2048 bits), a float its `repr`;
* text starts with a dot; None, True and False are `null`, `true` and `false`;
* a tuple is its parts, `()` when empty; a bare scalar, which differs from the tuple of one, starts with `=`.

In bot, realm and text everything but ASCII letters, digits and `_ . - ~` is percent-encoded UTF-8. So the
text is printable ASCII, has no whitespace and none of `: { } * ? [ ]`, and `/` only between parts: safe
inside a Redis key, hash tag or glob. It is not safe raw in SQL LIKE, whose wildcards `%` and `_` do occur:
compare with `=` or by range there. It may be long, as a key may be.

The encoding is injective and canonical: different addresses have different texts, types included (`1`, `"1"`,
`True`, `1.0`, `None`, `-0.0` and `0.0` all differ), and `decode` refuses whatever `encode` would not have
written. Python's own equality is weaker: `(1,) == (True,) == (1.0,)`, with one hash. **A dictionary of
conversations is therefore keyed by the encoded text, never by a key or an `Address`.**
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from hitherto.errors import BadKey

__all__ = ["Address", "Key", "Scalar", "check_key", "decode", "encode", "key_text", "parse_key"]

Scalar: TypeAlias = str | int | float | bool | None
Key: TypeAlias = tuple[Scalar, ...] | Scalar

_WIDEST_DECIMAL = 1 << 2048
_INT64 = 1 << 63
_LONGEST_DECIMAL = 640
_WORDS: dict[str, bool | None] = {"null": None, "true": True, "false": False}
_is_safe = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch
_is_integer = re.compile(r"-?[0-9]+").fullmatch
_is_float = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?").fullmatch
_is_hexadecimal = re.compile(r"-?0x[0-9a-f]+").fullmatch


class Address(NamedTuple):
    """One conversation of one bot; the realm is empty for conversations, others are the library's own.

    Two addresses that are equal to Python may differ all the same (`1 == True`): compare `encode(address)`.
    """

    bot: str
    realm: str
    key: Key


def encode(address: Address) -> str:
    """The text of an address; `BadKey` says why something cannot be one.

    It is on the path of every turn: 0.3 µs for a key of two ints, which is what most bots have, 1.9 µs with
    text that must be escaped, measured on CPython 3.11.
    """
    bot, realm, key = address
    if type(key) is tuple and len(key) == 2:
        one, two = key
        if type(one) is int and type(two) is int and -_INT64 < one < _INT64 and -_INT64 < two < _INT64:
            return f"{_prefix(bot, realm)}{one}/{two}"
    return _prefix(bot, realm) + key_text(key)


def decode(text: str) -> Address:
    """The address that `encode` wrote as this text; `BadKey` for any other text."""
    pieces = text.split("/", 2)
    if len(pieces) != 3:
        raise BadKey(f"not an address: {_shown(text)}; it looks like bot/realm/key")
    address = Address(_unquoted(pieces[0]), _unquoted(pieces[1]), parse_key(pieces[2]))
    if encode(address) != text:
        raise BadKey(f"not an address: {_shown(text)}; it would be written {_shown(encode(address))}")
    return address


def check_key(key: object) -> Key:
    """The key itself, in plain types; `BadKey` gives the reason and the path of what cannot be one.

    A key is text, an int, a finite float, a bool, None, or a tuple of these. Subclasses of str, int, float
    and tuple become the plain value they equal; an Enum member, which prints as something else, is refused.
    """
    if isinstance(key, list):
        raise BadKey("key: a list cannot be a key; use a tuple")
    if not isinstance(key, tuple):
        return _plain(key, "key")
    return tuple(_plain(part, f"key[{place}]") for place, part in enumerate(key))


def key_text(key: Key) -> str:
    """The key's part of an address, as `hitherto show KEY` takes it; `BadKey` if it cannot be a key."""
    if type(key) is tuple:
        try:
            return "/".join([_WRITERS[type(part)](part) for part in key]) or "()"
        except (KeyError, ValueError):
            return key_text(check_key(key))
    plain = check_key(key)
    return key_text(plain) if isinstance(plain, tuple) else "=" + _WRITERS[type(plain)](plain)


def parse_key(text: str) -> Key:
    """The key that `key_text` wrote as this text; `BadKey` for any other text."""
    key: Key
    if text == "()":
        key = ()
    elif text.startswith("="):
        key = _scalar(text[1:])
    else:
        key = tuple(_scalar(part) for part in text.split("/"))
    if key_text(key) != text:
        raise BadKey(f"not a key: {_shown(text)}; it would be written {_shown(key_text(key))}")
    return key


@lru_cache(maxsize=256)
def _prefix(bot: str, realm: str) -> str:
    for name, value in (("bot", bot), ("realm", realm)):
        if not isinstance(value, str):
            raise BadKey(f"{name}: must be text, not {type(value).__name__}")
        _plain(value, name)
    return f"{_quoted(bot)}/{_quoted(realm)}/"


def _quoted(text: str) -> str:
    return text if _is_safe(text) else quote(text, safe="")


def _unquoted(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        raise BadKey(f"not percent-encoded UTF-8: {_shown(text)}") from None


def _write_text(part: str) -> str:
    return "." + _quoted(part)


def _write_int(part: int) -> str:
    if -_WIDEST_DECIMAL < part < _WIDEST_DECIMAL:
        return str(part)
    return hex(part)


def _write_float(part: float) -> str:
    if not isfinite(part):
        raise ValueError("not finite")
    return repr(part)


_WRITERS: dict[type, Any] = {
    int: _write_int,
    str: _write_text,
    float: _write_float,
    bool: {True: "true", False: "false"}.__getitem__,
    type(None): {None: "null"}.__getitem__,
}


def _scalar(text: str) -> Scalar:
    if text.startswith("."):
        return _unquoted(text[1:])
    if text in _WORDS:
        return _WORDS[text]
    if _is_integer(text) and len(text) < _LONGEST_DECIMAL:
        return int(text)
    if _is_hexadecimal(text):
        return int(text, 16)
    if _is_float(text):
        return float(text)
    raise BadKey(f"not a part of a key: {_shown(text) or 'nothing'}; text starts with a dot, as in .support")


def _plain(part: object, path: str) -> Scalar:
    if part is None or isinstance(part, bool):
        return part
    if isinstance(part, Enum):
        raise BadKey(f"{path}: {type(part).__name__} is an Enum; use its .value")
    if isinstance(part, str):
        return _plain_text(part, path)
    if isinstance(part, int):
        return int.__int__(part)
    if isinstance(part, float):
        if not isfinite(part):
            raise BadKey(f"{path}: {float.__repr__(part)} is not a finite number")
        return float.__float__(part)
    raise BadKey(f"{path}: {type(part).__name__} cannot be in a key, only text, numbers, bools and None can")


def _plain_text(part: str, path: str) -> str:
    plain = str.__str__(part)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise BadKey(
            f"{path}: text with a lone surrogate at position {error.start} cannot be stored"
        ) from None
    return plain


def _shown(text: str) -> str:
    return ascii(text[:60] + "..." if len(text) > 60 else text)[1:-1]
