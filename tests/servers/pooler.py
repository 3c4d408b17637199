"""Transaction pooling as PgBouncer does it, inside the test, for machines without it, and stricter.

The next transaction of a client runs on another server connection than its last one, always, when no other
client is busy. So whatever leans on a session (prepared statements by name, SET, advisory locks, LISTEN,
temporary tables) fails at the second transaction.

Not for COPY, and not for servers that ask for a password.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from hitherto.testing.wire import PostgresWire, Request

from .process import LOOPBACK, free_port

CHUNK = 256 * 1024
GOODBYE = b"X\0\0\0\x04"


class TransactionPooler:
    """Shares `size` connections to the server at `target` among any number of clients of `url`, by
    transaction.
    """

    def __init__(self, target: str, *, size: int = 3) -> None:
        parts = urlsplit(target)
        self.target = (parts.hostname or LOOPBACK, parts.port or 5432)
        self.port = free_port()
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username or 'postgres'}@{LOOPBACK}:{self.port}"))
        self.size = size
        self.transactions = 0
        self._pools: dict[bytes, asyncio.Queue[_Backend]] = {}
        self._backends: list[_Backend] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port, limit=CHUNK)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for backend in self._backends:
            backend.writer.close()
        await asyncio.sleep(0)

    async def pool(self, start: bytes) -> asyncio.Queue[_Backend]:
        """The idle connections for clients that start like this, the longest idle first."""
        if start not in self._pools:
            pool = self._pools[start] = asyncio.Queue()
            for _ in range(self.size):
                pool.put_nowait(await self.connect(start))
        return self._pools[start]

    async def greeting(self, start: bytes) -> bytes:
        """What the server says to a client that starts like this."""
        await self.pool(start)
        return next(backend.greeting for backend in self._backends if backend.start == start)

    async def connect(self, start: bytes) -> _Backend:
        """A new connection to the server."""
        reader, writer = await asyncio.open_connection(*self.target, limit=CHUNK)
        backend = _Backend(start, reader, writer)
        self._backends.append(backend)
        backend.greeting = await backend.ask(start, Request("startup", ends="sync"))
        return backend

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_Client(self, writer).serve(reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Lost(Exception):
    """The server ended a connection; `said` is what it said last."""

    def __init__(self, said: bytes) -> None:
        super().__init__("the server ended the connection")
        self.said = said


class _Backend:
    """One connection to the server."""

    def __init__(self, start: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.start = start
        self.reader, self.writer = reader, writer
        self.wire = PostgresWire()
        self.greeting = b""
        self.idle = True

    async def ask(self, raw: bytes, request: Request) -> bytes:
        """The whole answer to one request; `idle` tells whether a transaction is open after it."""
        self.wire.waiting.append(request)
        self.writer.write(raw)
        answer = bytearray()
        while self.wire.waiting:
            data = await self.reader.read(CHUNK)
            if not data:
                raise _Lost(bytes(answer + self.wire.rest()))
            for block, answered in self.wire.replies(data):
                answer += block
                if answered:
                    self.idle = answered[-1].ends == "sync" and block[-1:] == b"I"
        return bytes(answer)


class _Client:
    """One client, which holds a server connection only inside a transaction."""

    def __init__(self, pooler: TransactionPooler, writer: asyncio.StreamWriter) -> None:
        self.pooler = pooler
        self.writer = writer
        self.wire = PostgresWire()
        self.start = b""
        self.backend: _Backend | None = None

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """To its end. A server connection that it leaves inside a transaction is replaced by a new one."""
        try:
            while data := await reader.read(CHUNK):
                for raw, request in self.wire.requests(data):
                    if raw == GOODBYE:
                        return
                    self.writer.write(await self._answer(raw, request))
        except _Lost as error:
            self.writer.write(error.said)
        except OSError:
            pass
        finally:
            self.writer.close()
            with contextlib.suppress(OSError, _Lost):
                await self._replace()

    async def _answer(self, raw: bytes, request: Request | None) -> bytes:
        self.wire.waiting.clear()
        if request is None:
            return b"N" if self.wire.wished_for_tls else b""
        if request.setup:
            self.start = raw
            return await self.pooler.greeting(raw)
        if self.backend is None:
            self.backend = await (await self.pooler.pool(self.start)).get()
        answer = await self.backend.ask(raw, request)
        if self.backend.idle:
            self.pooler.transactions += 1
            (await self.pooler.pool(self.start)).put_nowait(self.backend)
            self.backend = None
        return answer

    async def _replace(self) -> None:
        if self.backend is None:
            return
        self.backend.writer.close()
        (await self.pooler.pool(self.start)).put_nowait(await self.pooler.connect(self.start))
