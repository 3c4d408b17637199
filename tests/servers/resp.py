"""A blocking Redis client for the tests to look at a server without the library under test."""

from __future__ import annotations

import socket
import ssl
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit


class RespError(Exception):
    """The server answered with an error."""


class Resp:
    """One connection. A call sends a command: `resp("SET", "a", 1)`.

    Bulk replies come back as text (bytes that are not UTF-8 as surrogate escapes), the others as integers,
    lists, None.
    """

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        self._socket = _connect(url, timeout)
        self._replies = self._socket.makefile("rb")
        database = (
            parse_qs(parts.query).get("db", ["0"])[0] if "unix" in parts.scheme else parts.path.strip("/")
        )
        try:
            if parts.password:
                self("AUTH", *filter(None, [unquote(parts.username or ""), unquote(parts.password)]))
            if database not in ("", "0"):
                self("SELECT", database)
        except BaseException:
            self.close()
            raise

    def __call__(self, *words: str | bytes | float) -> Any:
        self.send(*words)
        return self.receive()

    def send(self, *words: str | bytes | float) -> None:
        """Send a command without waiting for its reply."""
        parts = [
            word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
            for word in words
        ]
        request = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        self._socket.sendall(b"*%d\r\n%b" % (len(parts), request))

    def receive(self) -> Any:
        """The next reply; `RespError` for an error."""
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        kind, text = line[:1], line[1:-2].decode("utf-8", "surrogateescape")
        if kind == b"-":
            raise RespError(text)
        if kind == b"+":
            return text
        size = int(text)
        if kind == b":":
            return size
        if size < 0:
            return None
        if kind == b"*":
            return [self._element() for _ in range(size)]
        body = self._replies.read(size + 2)
        if len(body) != size + 2:
            raise ConnectionResetError("the server closed the connection")
        return body[:-2].decode("utf-8", "surrogateescape")

    def _element(self) -> Any:
        try:
            return self.receive()
        except RespError as error:
            return error

    def timeout(self, seconds: float) -> None:
        """How long `receive` waits from now on; after a `TimeoutError` the connection is of no more use."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._replies.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(url: str, timeout: float) -> socket.socket:
    parts = urlsplit(url)
    if "unix" in parts.scheme:
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(timeout)
        try:
            local.connect(parts.path)
        except OSError:
            local.close()
            raise
        return local
    plain = socket.create_connection((parts.hostname or "localhost", parts.port or 6379), timeout)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme in ("rediss", "valkeys"):
        return ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname)
    return plain
