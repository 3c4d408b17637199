"""Data to bytes and back: exactly, or not at all.

A record's data is kept as *fields*: one canonical JSON text per top-level key. That makes a commit a patch of
what really changed (two fields differ when their bytes differ), lets every store lay data out as it likes (a
JSON column, one hash field per key), and means that what a caller gets is always a fresh object of its own.

What JSON would change silently is refused at once, with the path: NaN and infinities, bytes, sets, dates,
decimals, keys that are not text, lone surrogates, subclasses of the plain types. Tuples become lists.
Integers keep every digit, ``1e16`` stays a float. Flows that name a data class may hold whatever that class
declares.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Self, TypeAlias, TypeVar, is_typeddict

import msgspec

from hitherto.errors import DataError

Fields: TypeAlias = dict[str, bytes]
"""Top-level keys of a record's data, each with its value as JSON text."""

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 1_048_576
EMPTY_FIELDS: Final[Fields] = {}

_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_split: Callable[[bytes], dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_WIDE: Final = 1 << 63
_PLAIN = frozenset({int, bool, type(None)})


def check(value: object, path: str = "data", depth: int = 0) -> None:
    """Refuse, naming the path, whatever would not come back as it went in."""
    kind = type(value)
    if kind is str:
        if not value.isascii():  # type: ignore[attr-defined]
            _check_text(value, path)  # type: ignore[arg-type]
    elif kind in _PLAIN:
        return
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise DataError(f"{path}: {value} is not a JSON number; store None or text instead", path=path)
    elif kind is dict or kind is list or kind is tuple or kind is Data:
        _check_container(value, path, depth)  # type: ignore[arg-type]
    else:
        raise DataError(f"{path}: {kind.__name__}; declare a data class or store text", path=path)


def _check_text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{path}: text with a lone surrogate cannot be stored; replace it first", path=path
        ) from None


def _check_container(value: dict[Any, Any] | list[Any] | tuple[Any, ...], path: str, depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise DataError(f"{path}: nested deeper than {MAX_DEPTH} levels (or contains itself)", path=path)
    if not isinstance(value, dict):
        for index, item in enumerate(value):
            check(item, f"{path}[{index}]", depth + 1)
        return
    for key, item in value.items():
        if type(key) is not str:
            raise DataError(f"{path}: the key {key!r} is {type(key).__name__}; keys are text", path=path)
        if not key.isascii():
            _check_text(key, f"{path} (a key)")
        check(item, f'{path}["{key}"]', depth + 1)


def encode_value(value: object, path: str) -> bytes:
    """One checked value as JSON text."""
    check(value, path)
    try:
        return _encode(value)
    except ValueError as error:
        raise DataError(f"{path}: {error}", path=path) from None


class Data(dict[str, Any]):
    """Plain data that refuses at once what could not be stored, at the line that puts it in.

    What is nested in it is checked when it is put in, and once more when it is stored.
    """

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        encode({key: value})
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **values: Any) -> None:
        """As of a dict; all of it, or nothing when some of it is refused."""
        new = dict(*args, **values)
        encode(new)
        super().update(new)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self


def encode(data: Mapping[str, object]) -> Fields:
    """A dict of plain values as fields, refusing what would not round-trip."""
    if type(data) is not dict and type(data) is not Data:
        raise DataError(f"data: {type(data).__name__}; data without a data class is a dict", path="data")
    fields: Fields = {}
    for key, value in data.items():
        if type(key) is not str:
            raise DataError(f"data: the key {key!r} is {type(key).__name__}; keys are text", path="data")
        if not key.isascii():
            _check_text(key, "data (a key)")
        if (type(value) is str and value.isascii()) or (type(value) is int and -_WIDE < value < _WIDE):
            fields[key] = _encode(value)
        else:
            fields[key] = encode_value(value, f'data["{key}"]')
    check_size(fields)
    return fields


def check_size(fields: Fields) -> None:
    """Every record has a limit: refuse fields that together exceed it."""
    size = sum(map(len, fields.values())) + sum(map(len, fields))
    if size > MAX_BYTES:
        raise DataError(f"data: {size} bytes, more than the {MAX_BYTES} a record may hold", path="data")


def decode(fields: Fields) -> dict[str, Any]:
    """Fields as a fresh dict of plain values."""
    return {key: _decode(text) for key, text in fields.items()}


def decode_value(text: bytes) -> Any:
    """One field's value."""
    return _decode(text)


def join(fields: Fields) -> bytes:
    """Fields as one JSON object."""
    return b"{" + b",".join([_encode(key) + b":" + text for key, text in fields.items()]) + b"}"


def split(text: bytes | str) -> Fields:
    """One JSON object as fields, each value's text untouched."""
    source = text.encode() if isinstance(text, str) else text
    return {key: bytes(raw) for key, raw in _split(source).items()}


class Shape:
    """How one data class travels: dataclass, msgspec Struct, TypedDict or pydantic model.

    ``None`` stands for a plain dict. Decoding checks types and names the field that is wrong; encoding checks
    the same, so that nothing is stored which could not be loaded again.
    """

    __slots__ = ("_decode", "_dump", "_names", "cls")

    def __init__(self, cls: type[Any] | None) -> None:
        self.cls = cls
        self._dump: Callable[[Any], Any] = msgspec.to_builtins
        if cls is None:
            return
        if hasattr(cls, "model_validate_json") and hasattr(cls, "model_dump"):
            self._decode: Callable[[bytes], Any] = cls.model_validate_json
            self._names: tuple[str, ...] = tuple(cls.model_fields)
            self._dump = lambda value: value.model_dump(mode="json", by_alias=True, warnings=False)
        elif dataclasses.is_dataclass(cls) or is_typeddict(cls) or issubclass(cls, msgspec.Struct):
            self._decode = msgspec.json.Decoder(cls).decode
            self._names = getattr(cls, "__struct_fields__", None) or tuple(cls.__annotations__)
            if dataclasses.is_dataclass(cls):
                self._names = tuple(field.name for field in dataclasses.fields(cls))
        else:
            raise TypeError(
                f"data={cls.__name__}: use a dataclass, a msgspec.Struct, a TypedDict or a pydantic model"
            )

    def empty(self, values: Mapping[str, object] | None = None) -> Any:
        """A new instance from defaults (and *values*); a DataError says which field has none."""
        if self.cls is None or is_typeddict(self.cls):
            return dict(values or {})
        try:
            return self.cls(**(values or {}))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data: {self.cls.__name__} cannot be made from its defaults ({_reason(error)}); "
                "give every field a default or pass the values to start()",
                path="data",
            ) from error

    def changed(self, value: Any, new: Mapping[str, object]) -> Any:
        """A copy of an instance with other values; an unknown name is refused with the nearest one."""
        for name in new:
            if name not in self._names:
                near = difflib.get_close_matches(name, self._names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self._names)}"
                path = f'data["{name}"]'
                raise DataError(f"{path}: {type(value).__name__} has no such field; {hint}", path=path)
        if hasattr(value, "model_copy"):
            return value.model_copy(update=dict(new))
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **new)
        return dataclasses.replace(value, **new)

    def decode(self, fields: Fields) -> Any:
        """Fields as an instance; wrong stored data is a DataError naming the field."""
        if self.cls is None:
            return {key: _decode(text) for key, text in fields.items()}
        if not fields:
            return self.empty()
        try:
            return self._decode(join(fields))
        except (msgspec.ValidationError, ValueError) as error:
            path = _error_path(error)
            raise DataError(f"{path}: {_reason(error)}", path=path) from error

    def encode(self, value: Any) -> Fields:
        """An instance as fields, refused when it could not be decoded again."""
        if self.cls is None:
            return encode(value)
        if not is_typeddict(self.cls) and not isinstance(value, self.cls):
            raise DataError(f"data: {type(value).__name__}; expected {self.cls.__name__}", path="data")
        try:
            plain = self._dump(value)
        except (TypeError, ValueError) as error:
            raise DataError(f"data: {_reason(error)}", path="data") from error
        fields = encode(plain)
        if fields:
            self.decode(fields)
        return fields


def _details(error: Exception) -> dict[str, Any] | None:
    """The first complaint of a pydantic error, without the input that it would quote."""
    errors: Callable[..., list[dict[str, Any]]] | None = getattr(error, "errors", None)
    return errors(include_url=False, include_input=False)[0] if callable(errors) else None


def _reason(error: Exception) -> str:
    details = _details(error)
    if details is not None:
        return str(details["msg"])
    return str(error).split(" - at `")[0]


def _error_path(error: Exception) -> str:
    """The field a decoder complained about, in the form ``data["cart"][2]``."""
    details = _details(error)
    if details is not None:
        parts = details["loc"]
        return "data" + "".join(f"[{part}]" if isinstance(part, int) else f'["{part}"]' for part in parts)
    text = str(error)
    if " - at `$" in text:
        inside = text.rsplit(" - at `$", 1)[1].rstrip("`")
        return "data" + "".join(
            f'["{part}"]{rest}' for part, rest in map(_split_index, filter(None, inside.split(".")))
        )
    if "missing required field `" in text:
        return f'data["{text.split("`")[1]}"]'
    return "data"


def _split_index(part: str) -> tuple[str, str]:
    name, bracket, rest = part.partition("[")
    return name, bracket + rest
