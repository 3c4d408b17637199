"""A blocking PostgreSQL client for the tests to look at a server without the library under test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import struct
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

Row = tuple[str | None, ...]


class PgError(Exception):
    """The server answered with an error; `code` is its SQLSTATE."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(f"{fields.get('C')}: {fields.get('M')}")
        self.code = fields.get("C", "")


class Pg:
    """One connection by URL (`?host=/directory` for a socket file). Passwords by SCRAM or clear; no TLS."""

    def __init__(self, url: str, timeout: float = 20.0) -> None:
        parts = urlsplit(url)
        self._user = unquote(parts.username or "postgres")
        self._password = unquote(parts.password or "")
        self._socket = _connect(url, timeout)
        self._replies = self._socket.makefile("rb")
        database = parts.path.strip("/") or self._user
        words = b"".join(word.encode() + b"\0" for word in ("user", self._user, "database", database))
        start = struct.pack("!i", 196608) + words + b"\0"
        self._socket.sendall(struct.pack("!i", len(start) + 4) + start)
        try:
            self._authenticate()
            self._rows()
        except BaseException:
            self.close()
            raise

    def query(self, sql: str) -> list[Row]:
        """The rows of the last statement, each value as the server's text; `PgError` for an error."""
        self._send(b"Q", sql.encode() + b"\0")
        return self._rows()

    def _send(self, kind: bytes, body: bytes) -> None:
        self._socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def _receive(self) -> tuple[bytes, bytes]:
        head = self._replies.read(5)
        if len(head) != 5:
            raise ConnectionResetError("the server closed the connection")
        return head[:1], self._replies.read(struct.unpack("!i", head[1:])[0] - 4)

    def _rows(self) -> list[Row]:
        rows: list[Row] = []
        error: PgError | None = None
        while True:
            kind, body = self._receive()
            if kind == b"Z":
                break
            if kind == b"E":
                error = _error(body)
                if error.code.startswith(("57P", "53", "28", "3D")):
                    break
            elif kind == b"T":
                rows = []
            elif kind == b"D":
                rows.append(_values(body))
        if error is not None:
            raise error
        return rows

    def _authenticate(self) -> None:
        while True:
            kind, body = self._receive()
            if kind == b"E":
                raise _error(body)
            (wanted,) = struct.unpack("!i", body[:4])
            if wanted == 0:
                return
            if wanted == 3:
                self._send(b"p", self._password.encode() + b"\0")
            elif wanted == 10:
                self._scram()
            else:
                raise PgError({"M": f"authentication method {wanted} is not spoken here"})

    def _scram(self) -> None:
        """SCRAM-SHA-256, RFC 7677; the server's own proof is not checked."""
        bare = "n=,r=" + base64.b64encode(os.urandom(18)).decode()
        first = f"n,,{bare}".encode()
        self._send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
        kind, body = self._receive()
        if kind == b"E":
            raise _error(body)
        challenge = body[4:].decode()
        nonce, salt, rounds = (part[2:] for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), base64.b64decode(salt), int(rounds))
        key = hmac.digest(salted, b"Client Key", "sha256")
        final = f"c=biws,r={nonce}"
        signature = hmac.digest(
            hashlib.sha256(key).digest(), f"{bare},{challenge},{final}".encode(), "sha256"
        )
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        self._send(b"p", f"{final},p={proof}".encode())
        kind, body = self._receive()
        if kind == b"E":
            raise _error(body)

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
    directory = parse_qs(parts.query).get("host", [""])[0]
    port = parts.port or int(parse_qs(parts.query).get("port", ["5432"])[0])
    if not directory.startswith("/"):
        return socket.create_connection((parts.hostname or "localhost", port), timeout)
    local = socket.socket(socket.AF_UNIX)
    local.settimeout(timeout)
    try:
        local.connect(f"{directory}/.s.PGSQL.{port}")
    except OSError:
        local.close()
        raise
    return local


def _error(body: bytes) -> PgError:
    fields = [part.decode(errors="replace") for part in body.split(b"\0") if part]
    return PgError({field[0]: field[1:] for field in fields})


def _values(body: bytes) -> Row:
    values: list[str | None] = []
    place = 2
    for _ in range(struct.unpack("!h", body[:2])[0]):
        (size,) = struct.unpack("!i", body[place : place + 4])
        place += 4
        values.append(None if size < 0 else body[place : place + size].decode())
        place += max(size, 0)
    return tuple(values)
