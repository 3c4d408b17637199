"""Where requests and replies begin and end in the byte streams of Redis and PostgreSQL.

A `Wire` belongs to one connection. Fed with what the client sent, it yields blocks of whole requests; fed
with what the server sent, blocks of whole replies, each with the requests that it answers. All bytes come
out, unchanged, in order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

SETUP = {
    "AUTH",
    "CLIENT",
    "CLUSTER",
    "COMMAND",
    "HELLO",
    "INFO",
    "PING",
    "READONLY",
    "ROLE",
    "SELECT",
    "SENTINEL",
}
STREAMING = {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "PSYNC", "SYNC", "REPLCONF"}
VERSION_3 = 196608
WISHES = {80877103, 80877104}


@dataclass(eq=False)
class Request:
    """Something the client waits for an answer to.

    Redis: `name` is the command in capitals, `words` the rest. PostgreSQL: `name` is the SQL text (that of
    the prepared statement where one is executed) or `startup`, `words` the kinds of the messages. `setup`
    marks what a client sends to make a connection ready.
    """

    name: str
    words: tuple[bytes, ...] = ()
    setup: bool = False
    ends: Literal["reply", "sync", "flush"] = "reply"
    ends_flight: bool = False


Block = tuple[bytes, Request | None]
Answer = tuple[bytes, list[Request]]


class Wire:
    """Bytes without structure: what was read at once is a request, and any answer answers all that wait."""

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self._up = bytearray()
        self._down = bytearray()
        self._opaque = False

    def requests(self, data: bytes) -> list[Block]:
        """The blocks completed by these bytes from the client; the last request of a burst is marked."""
        self._up += data
        blocks = list(self._take_requests())
        found = [request for _, request in blocks if request is not None]
        self.waiting.extend(found)
        if found and not self._inside_request():
            found[-1].ends_flight = True
        return blocks

    def replies(self, data: bytes) -> list[Answer]:
        """The blocks completed by these bytes from the server."""
        self._down += data
        return list(self._take_replies())

    def rest(self) -> bytes:
        """What the server said without coming to an end, when it ends the connection."""
        return _take(self._down, len(self._down))

    def _inside_request(self) -> bool:
        return bool(self._up)

    def _take_requests(self) -> Iterator[Block]:
        yield _take(self._up, len(self._up)), Request("bytes")

    def _take_replies(self) -> Iterator[Answer]:
        answered = list(self.waiting)
        self.waiting.clear()
        yield _take(self._down, len(self._down)), answered


def _take(buffer: bytearray, size: int) -> bytes:
    taken = bytes(buffer[:size])
    del buffer[:size]
    return taken


class RedisWire(Wire):
    """RESP2 and RESP3: every command has one reply; pushes belong to nobody. After SUBSCRIBE and its like,
    bytes.
    """

    def _take_requests(self) -> Iterator[Block]:
        while self._up and not self._opaque and (size := resp_size(self._up)):
            raw = _take(self._up, size)
            words = resp_words(raw)
            name = words[0].decode(errors="replace").upper() if words else ""
            self._opaque = name in STREAMING
            yield raw, Request(name, tuple(words[1:]), setup=name in SETUP)
        if self._opaque and self._up:
            yield _take(self._up, len(self._up)), None

    def _take_replies(self) -> Iterator[Answer]:
        while self._down and not self._opaque and (size := resp_size(self._down)):
            push = self._down[:1] == b">"
            answered = [] if push or not self.waiting else [self.waiting.popleft()]
            yield _take(self._down, size), answered
        if self._opaque and self._down:
            yield _take(self._down, len(self._down)), []


def resp_size(buffer: bytearray) -> int:
    """The length of the first value in the buffer, 0 when it is not complete yet."""
    place, values = 0, 1
    while values:
        end = buffer.find(b"\r\n", place)
        if end < 0:
            return 0
        kind, text = bytes(buffer[place : place + 1]), buffer[place + 1 : end]
        place, values = end + 2, values - 1
        if kind in (b"*", b"~", b">"):
            values += max(int(text), 0)
        elif kind in (b"%", b"|"):
            values += 2 * int(text) + (kind == b"|")
        elif kind in (b"$", b"=", b"!") and int(text) >= 0:
            place += int(text) + 2
        if place > len(buffer):
            return 0
    return place


def resp_words(raw: bytes) -> list[bytes]:
    """The words of one command."""
    if raw[:1] != b"*":
        return raw.split()
    words, place = [], raw.find(b"\r\n") + 2
    while place < len(raw):
        end = raw.find(b"\r\n", place)
        size = int(raw[place + 1 : end])
        words.append(raw[end + 2 : end + 2 + size])
        place = end + 2 + size + 2
    return words


class PostgresWire(Wire):
    """Protocol 3: a request is a simple query, or what goes up to a Sync (answered by ReadyForQuery) or a
    Flush.
    """

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._ready = False
        self.wished_for_tls = False
        self._held = bytearray()
        self._answer = bytearray()
        self._kinds: list[bytes] = []
        self._sql = ""
        self._statements: dict[bytes, str] = {}

    def rest(self) -> bytes:
        """What the server said without coming to an end, when it ends the connection."""
        return _take(self._answer, len(self._answer)) + super().rest()

    def _inside_request(self) -> bool:
        return bool(self._up or self._held)

    def _take_requests(self) -> Iterator[Block]:
        while not self._opaque and (message := self._next_up()):
            if not self._started:
                yield message, self._opening(message)
                continue
            kind = message[:1]
            if not self._note(kind, message):
                yield _take(self._held, len(self._held)) + message, None
            elif kind in b"QSH":
                raw = _take(self._held, len(self._held)) + message
                yield raw, Request(self._sql, tuple(self._kinds), ends="flush" if kind == b"H" else "sync")
                self._kinds, self._sql = [], ""
            else:
                self._held += message
        if self._opaque and self._up:
            yield _take(self._up, len(self._up)), None

    def _opening(self, message: bytes) -> Request | None:
        """The first messages have no kind: a wish for TLS, the order to cancel something, or the start
        itself.
        """
        (code,) = struct.unpack_from("!i", message, 4)
        self.wished_for_tls = code in WISHES
        self._started = code == VERSION_3
        return Request("startup", setup=True, ends="sync") if self._started else None

    def _next_up(self) -> bytes:
        start = 1 if self._started else 0
        if len(self._up) < start + 4:
            return b""
        size = start + struct.unpack_from("!i", self._up, start)[0]
        return _take(self._up, size) if len(self._up) >= size else b""

    def _note(self, kind: bytes, message: bytes) -> bool:
        """Remember what the request is about; False for a message that is none of a query's."""
        if kind not in b"QPBDECSH":
            return False
        self._kinds.append(kind)
        if kind == b"Q":
            self._sql = message[5:-1].decode(errors="replace")
        elif kind == b"P":
            name, sql = message[5:].split(b"\0")[:2]
            self._sql = self._statements[name] = sql.decode(errors="replace")
        elif kind == b"B":
            self._sql = self._statements.get(message[5:].split(b"\0")[1], "")
        return True

    def _take_replies(self) -> Iterator[Answer]:
        if self.wished_for_tls and self._down:
            self.wished_for_tls = False
            self._opaque = self._down[:1] != b"N"
            yield _take(self._down, 1), []
        if self._opaque and self._down:
            yield _take(self._down, len(self._down)), []
        while len(self._down) >= 5:
            size = 1 + struct.unpack_from("!i", self._down, 1)[0]
            if len(self._down) < size:
                return
            kind = bytes(self._down[:1])
            self._answer += _take(self._down, size)
            answered = self._answers(kind)
            if answered or kind in b"GWH" or not self._ready or not self.waiting:
                self._ready = self._ready or kind == b"Z"
                yield _take(self._answer, len(self._answer)), answered

    def _answers(self, kind: bytes) -> list[Request]:
        """Which requests this message is the end of the answer to."""
        answered: list[Request] = []
        if kind in b"TnE" and self.waiting and self.waiting[0].ends == "flush":
            answered.append(self.waiting.popleft())
        elif kind == b"Z":
            while self.waiting:
                answered.append(self.waiting.popleft())
                if answered[-1].ends == "sync":
                    break
        return answered


def wire_for(url: str) -> type[Wire]:
    """The wire that the scheme of a URL speaks."""
    scheme = urlsplit(url).scheme
    if scheme.startswith("postgres"):
        return PostgresWire
    return RedisWire if scheme.startswith(("redis", "valkey")) else Wire
