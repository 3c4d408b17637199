"""Commands to bytes and bytes to replies: by hiredis where it is installed, in Python otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

__all__ = ["PythonReader", "Reader", "ServerError", "new_reader", "pack", "pack_in_python"]


Pack: TypeAlias = Callable[[tuple[bytes | str | int, ...]], bytes]
_INSIDE_SCRIPT: Final = re.compile(r"@user_script: ?\d+: -?([A-Z]{3,}) ")


class ServerError(Exception):
    """The server answered with an error; ``code`` is its first word, or (Redis 6.2) that of the error inside
    a script.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        inside = _INSIDE_SCRIPT.search(text)
        self.code = text.partition(" ")[0] if inside is None else inside[1]


class Reader(Protocol):
    """Feed it bytes; it gives replies, and ``False`` when there is no whole one."""

    def feed(self, data: bytes, /) -> object: ...

    def gets(self) -> Any: ...


def pack_in_python(words: tuple[bytes | str | int, ...]) -> bytes:
    """One command as the protocol writes it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word if type(word) is bytes else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


class PythonReader:
    """The protocol's second version, without hiredis."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def feed(self, data: bytes, /) -> None:
        """More bytes."""
        self._data = self._data[self._at :] + data
        self._at = 0

    def gets(self) -> Any:
        """The next reply; ``False`` when it is not all there."""
        start = self._at
        try:
            return self._next()
        except IndexError:
            self._at = start
            return False

    def _line(self) -> bytes:
        end = self._data.find(b"\r\n", self._at)
        if end < 0:
            raise IndexError
        line, self._at = self._data[self._at : end], end + 2
        return line

    def _next(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ServerError(rest.decode("utf-8", "replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._bulk(int(rest))
        if kind == b"*":
            return None if rest == b"-1" else [self._next() for _ in range(int(rest))]
        raise ServerError(f"PROTOCOL unexpected {line[:20]!r}")

    def _bulk(self, size: int) -> bytes:
        end = self._at + size
        if len(self._data) < end + 2:
            raise IndexError
        text, self._at = self._data[self._at : end], end + 2
        return text


try:
    import hiredis

    pack: Pack = hiredis.pack_command  # type: ignore[assignment]

    def new_reader() -> Reader:
        """A reader of one connection's replies."""
        return hiredis.Reader(replyError=ServerError, protocolError=ServerError)

except ImportError:  # the extra brings it; without it everything works, only slower
    pack = pack_in_python

    def new_reader() -> Reader:
        """A reader of one connection's replies."""
        return PythonReader()
