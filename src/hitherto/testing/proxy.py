"""A TCP proxy in a test's own process that does what networks do: delay, cut, slice, reset, lose the reply.

It lives on the loop of the test, so a test that blocks the loop blocks the proxy; and it knows where requests
and replies end (`wire`), so it can let the server apply a command and then lose exactly its reply, and can
count.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NoReturn, Self
from urllib.parse import urlsplit, urlunsplit

from hitherto.testing.wire import Request, wire_for

Ending = Literal["reset", "close", "hang"]
Direction = Literal["both", "up", "down"]
LOOPBACK = "127.0.0.1"
CHUNK = 256 * 1024
PIECE_GAP = 0.0002


@dataclass
class Counts:
    """What passed since the proxy's start or `reset_counts`.

    `round_trips`: bursts of the client that got their answer. A burst is what was read from the client at
    once (up to 256 KiB; one that ends inside a request is continued by the next), and it counts when the
    reply to its last request has come. A pipeline written at once is one burst, two writes that are under way
    at the same time are two; two writes which reach the proxy before it reads are one: they did travel
    together. `requests` and `replies` are exact.
    """

    connections: int = 0
    round_trips: int = 0
    requests: int = 0
    replies: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    lost_requests: int = 0
    lost_replies: int = 0
    names: Counter[str] = field(default_factory=Counter)


@dataclass
class Loss:
    """A rule that loses requests or replies; `hits` tells how many it did, `cancel` ends it."""

    side: Literal["request", "reply"]
    nth: int | None
    probability: float
    limit: int | None
    only: Callable[[Request], bool]
    ending: Ending
    hits: int = 0
    seen: int = 0
    active: bool = True

    def takes(self, request: Request, chance: random.Random) -> bool:
        """Whether this request is hit."""
        if not self.active or request.setup or not self.only(request):
            return False
        self.seen += 1
        hit = self.seen == self.nth if self.nth is not None else chance.random() < self.probability
        self.hits += hit
        if self.nth == self.seen or self.hits == self.limit:
            self.active = False
        return hit

    def cancel(self) -> None:
        """Lose nothing any more."""
        self.active = False


class Proxy:
    """Stands before the server at `target` (a URL, or host and port); clients use `url` (or `host` and
    `port`), both known once it is open.

    Settings can change at any time: `latency` and `jitter` (seconds, added to what the server says), `slice`
    (at most so many bytes in a piece, both ways), `refuse` (new connections are reset at once). `async with`
    opens and closes it. A server that is down shows itself as a connection that is reset, not one that is
    refused.
    """

    def __init__(
        self, target: str | tuple[str, int], *, seed: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        if isinstance(target, tuple):
            target = f"tcp://{target[0]}:{target[1]}"
        parts = urlsplit(target)
        self.target = (parts.hostname or LOOPBACK, parts.port or 0)
        self.host, self.port = LOOPBACK, 0
        self._parts = parts
        self.wire = wire_for(target)
        self.chance = random.Random(seed)
        self.tls = tls
        self.latency = 0.0
        self.jitter = 0.0
        self.slice: int | None = None
        self.refuse = False
        self.counts = Counts()
        self._losses: list[Loss] = []
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self.mend()

    async def start(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(
            self._accept, self.host, self.port, ssl=self.tls, limit=CHUNK
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def url(self) -> str:
        """The URL of the target, by way of the proxy; once it has been opened."""
        secret, at, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{secret}{at}{self.host}:{self.port}"))

    async def close(self) -> None:
        """Listen no more and reset what is open."""
        if self._server is not None:
            self._server.close()
        tasks = [link.task for link in self._links if link.task is not None]
        self.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    def reset(self) -> int:
        """Reset every open connection (RST on both sides); how many."""
        links = list(self._links)
        for link in links:
            link.end("reset")
        return len(links)

    def cut(self, direction: Direction = "both") -> None:
        """Let nothing pass until `mend`: connections stay open and silent, new ones get no answer. Nothing is
        lost, as TCP loses nothing; "down" lets the server work and holds only what it says.
        """
        for name in ("up", "down"):
            if direction in ("both", name):
                self._open[name].clear()

    def mend(self) -> None:
        """Undo `cut`: what was held passes now."""
        for gate in self._open.values():
            gate.set()

    def lose_reply(
        self,
        nth: int | None = 1,
        *,
        probability: float | None = None,
        limit: int | None = None,
        only: Callable[[Request], bool] = lambda _: True,
        ending: Ending = "reset",
    ) -> Loss:
        """Let the server apply a request, read its reply, and end the client's connection instead of passing
        it on.

        Which one: the `nth` from now, or each with `probability` (at most `limit` of them); counted among
        those which `only` accepts, connection setup never. `ending`: "reset", "close" (FIN), or "hang"
        (silence for ever).
        """
        return self._lose(
            Loss("reply", None if probability else nth, probability or 0.0, limit, only, ending)
        )

    def lose_request(
        self,
        nth: int | None = 1,
        *,
        probability: float | None = None,
        limit: int | None = None,
        only: Callable[[Request], bool] = lambda _: True,
        ending: Ending = "reset",
    ) -> Loss:
        """As `lose_reply`, but the request never reaches the server."""
        return self._lose(
            Loss("request", None if probability else nth, probability or 0.0, limit, only, ending)
        )

    def _lose(self, loss: Loss) -> Loss:
        self._losses = [*[one for one in self._losses if one.active], loss]
        return loss

    def reset_counts(self) -> Counts:
        """Begin to count at nothing; what was counted until now."""
        counts, self.counts = self.counts, Counts()
        return counts

    def taken(self, request: Request) -> Loss | None:
        """The rule that hits this request, if any."""
        return next((loss for loss in list(self._losses) if loss.takes(request, self.chance)), None)

    def delay(self) -> float:
        """Seconds for the next thing the server says."""
        return self.latency + self.chance.uniform(0, self.jitter) if self.latency or self.jitter else 0.0

    async def passable(self, direction: Literal["up", "down"]) -> None:
        """Wait while the direction is cut."""
        await self._open[direction].wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        if self.refuse:
            link.end("reset")
            return
        self._links.add(link)
        self.counts.connections += 1
        try:
            await link.run()
        except OSError:
            link.end("reset")
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            link.end("close")
            self._links.discard(link)


class _Lane:
    """One direction of a connection: what is handed over leaves in order, in pieces, when it is due."""

    def __init__(self, proxy: Proxy, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.writer = writer
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._pending = 0

    def send(self, data: bytes, delay: float = 0.0) -> None:
        now = self._loop.time()
        if not self._pending and not delay and not self.proxy.slice:
            self._write(data)
            return
        size = self.proxy.slice or len(data) or 1
        for start in range(0, len(data), size):
            self._due = max(self._due + PIECE_GAP, now + delay)
            self._pending += 1
            self._loop.call_at(self._due, self._release, data[start : start + size])

    async def empty(self) -> None:
        """Wait until all has left."""
        while self._pending:
            left = asyncio.Event()
            self._loop.call_at(self._due + PIECE_GAP, left.set)
            await left.wait()

    def _release(self, piece: bytes) -> None:
        self._pending -= 1
        self._write(piece)

    def _write(self, data: bytes) -> None:
        if data and not self.writer.is_closing():
            self.writer.write(data)


class _Link:
    """One client's connection and its counterpart to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.reader, self.writer = reader, writer
        self.wire = proxy.wire()
        self.server_writer: asyncio.StreamWriter | None = None
        self.losses: dict[Request, Loss] = {}
        self.task: asyncio.Task[None] | None = asyncio.current_task()

    async def run(self) -> None:
        await self.proxy.passable("up")
        server_reader, self.server_writer = await asyncio.open_connection(*self.proxy.target, limit=CHUNK)
        if self.writer.is_closing():
            return
        up = asyncio.ensure_future(self._pump_up(_Lane(self.proxy, self.server_writer)))
        down = asyncio.ensure_future(self._pump_down(server_reader, _Lane(self.proxy, self.writer)))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in (up, down):
                pump.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pump_up(self, lane: _Lane) -> None:
        while data := await self.reader.read(CHUNK):
            await self.proxy.passable("up")
            self.proxy.counts.bytes_up += len(data)
            passing = bytearray()
            for raw, request in self.wire.requests(data):
                loss = self._judge(request) if request is not None else None
                if loss is not None and loss.side == "request":
                    lane.send(bytes(passing))
                    await self._lose(loss, lane)
                passing += raw
            lane.send(bytes(passing))
            await lane.writer.drain()
        await lane.empty()

    def _judge(self, request: Request) -> Loss | None:
        """Count a request and find the rule that hits it or its reply."""
        counts = self.proxy.counts
        counts.requests += 1
        counts.names[request.name] += 1
        loss = self.proxy.taken(request)
        if loss is not None and loss.side == "reply":
            self.losses[request] = loss
        return loss

    async def _pump_down(self, reader: asyncio.StreamReader, lane: _Lane) -> None:
        while data := await reader.read(CHUNK):
            await self.proxy.passable("down")
            passing = bytearray()
            for raw, answered in self.wire.replies(data):
                loss = next((self.losses[one] for one in answered if one in self.losses), None)
                if loss is not None:
                    self._pass_on(lane, passing)
                    await self._lose(loss, lane)
                self._count(answered)
                passing += raw
            self._pass_on(lane, passing)
            await lane.writer.drain()
        self._pass_on(lane, self.wire.rest())
        await lane.empty()

    def _count(self, answered: list[Request]) -> None:
        counts = self.proxy.counts
        counts.replies += len(answered)
        counts.round_trips += sum(request.ends_flight for request in answered)

    def _pass_on(self, lane: _Lane, data: bytes | bytearray) -> None:
        self.proxy.counts.bytes_down += len(data)
        lane.send(bytes(data), self.proxy.delay())

    async def _lose(self, loss: Loss, lane: _Lane) -> NoReturn:
        """Lose what is next, everything before it having left, and go no further."""
        if loss.side == "request":
            self.proxy.counts.lost_requests += 1
        else:
            self.proxy.counts.lost_replies += 1
        await lane.empty()
        if loss.ending != "hang":
            self.end(loss.ending)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def end(self, ending: Ending) -> None:
        """End both sides; "reset" lets the client see a reset connection."""
        for writer in (self.writer, self.server_writer):
            if writer is None or writer.is_closing():
                continue
            if ending == "reset":
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()
