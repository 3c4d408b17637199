"""Plain data of any shape as the fields of a record, for frameworks whose data may have other keys.

Keys that are numbers, bools or None are written as ``#`` and their JSON, text that begins with ``#`` with one
more; what is no dict is one field ``#``. Everything else is as :mod:`hitherto.codec` has it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hitherto import codec
from hitherto.codec import Fields
from hitherto.errors import DataError

__all__ = ["pack", "unpack"]

_ALONE: Final = "#"
_MARKED: Final = b'"#'


def pack(data: Any, path: str = "data", *, whole: bool = False) -> Fields:
    """Plain data as fields, one for each key of a dict (unless it is *whole*), or a ``DataError``."""
    if whole or not isinstance(data, dict):
        return {_ALONE: codec.encode_value(_with_text(data, path), path)}
    fields = {
        _text(key, path): codec.encode_value(_with_text(value, path), f"{path}[{json.dumps(key)}]")
        for key, value in data.items()
    }
    codec.check_size(fields)
    return fields


def unpack(fields: Fields) -> Any:
    """What :func:`pack` was given."""
    if _ALONE in fields:
        return _restored(fields[_ALONE])
    return {_key(name): _restored(text) for name, text in fields.items()}


def _text(key: object, path: str) -> str:
    if type(key) is str:
        return _ALONE + key if key.startswith(_ALONE) else key
    if key is None or type(key) in (int, bool, float):
        return _ALONE + json.dumps(key)
    raise DataError(f"{path}: a key is {type(key).__name__}; keys are text or numbers", path=path)


def _key(name: str) -> Any:
    if not name.startswith(_ALONE):
        return name
    return name[1:] if name.startswith(_ALONE * 2) else json.loads(name[1:])


def _with_text(value: Any, path: str, depth: int = 0) -> Any:
    """The same with text as keys, in dicts of any depth that can be stored."""
    if depth > codec.MAX_DEPTH:
        return value
    if type(value) is dict:
        return {_text(key, path): _with_text(inner, path, depth + 1) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return [_with_text(inner, path, depth + 1) for inner in value]
    return value


def _restored(text: bytes) -> Any:
    value = codec.decode_value(text)
    return _with_keys(value) if _MARKED in text else value


def _with_keys(value: Any) -> Any:
    if type(value) is dict:
        return {_key(name): _with_keys(inner) for name, inner in value.items()}
    return [_with_keys(inner) for inner in value] if type(value) is list else value
