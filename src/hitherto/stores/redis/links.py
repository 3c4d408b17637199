"""One connection that many calls share: commands are written as they come, replies handed out in their order.

redis-py sets the connection up (addresses, TLS, authentication, handshake, database); then its transport is
taken over, because a command through redis-py costs several times what it costs here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from hitherto.errors import StoreError, StoreUnavailable
from hitherto.stores.gather import Trip
from hitherto.stores.redis.wire import ServerError, new_reader

__all__ = ["Link", "Lost", "Unreachable", "connected"]

_REFUSED = ("WRONGPASS", "NOAUTH", "NOPERM", "AuthenticationError", "AuthorizationError")


class Unreachable(StoreUnavailable):
    """There was no connection: nothing was sent."""


class Lost(StoreUnavailable):
    """The connection was lost before the reply came: what was sent may have been done."""


class Link(asyncio.Protocol):
    """A connection with replies under way; when it is lost, whoever waits for one has a :class:`Lost`."""

    def __init__(self, connection: Any, timeout: float, url: str) -> None:
        self._writer = connection._writer  # its end would close the transport
        self._transport: asyncio.Transport = self._writer.transport
        connection._writer = connection._reader = None
        self._timeout, self.url = timeout, url
        self._reader = new_reader()
        self._under_way: deque[tuple[Trip, int, float]] = deque()
        self._replies: list[Any] = []
        self._watch: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.is_open = not self._transport.is_closing()
        self._transport.set_protocol(self)

    def execute(self, commands: list[bytes]) -> Trip:
        """The replies to packed commands, error replies among them; one write, one trip."""
        trip = Trip(loop=self._loop)
        if not self.is_open:
            trip.returns(Unreachable("the connection was lost", url=self.url))
            return trip
        self._under_way.append((trip, len(commands), self._loop.time()))
        self._transport.write(commands[0] if len(commands) == 1 else b"".join(commands))
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look_after)
        return trip

    def close(self) -> None:
        """End it; what is under way fails."""
        self._lost("the connection was closed")
        self._transport.abort()

    # --------------------------------------------------------------------------- called by the transport

    def data_received(self, data: bytes) -> None:
        """Hand out replies."""
        reader, replies = self._reader, self._replies
        reader.feed(data)
        while True:
            try:
                reply = reader.gets()
            except ServerError:
                self.close()
                return
            if reply is False:
                return
            if not self._under_way:
                continue
            replies.append(reply)
            if len(replies) == self._under_way[0][1]:
                all_of_it, self._replies = replies, []
                self._under_way.popleft()[0].returns(all_of_it)
                replies = self._replies

    def eof_received(self) -> None:
        """The server has gone."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits for a reply is told."""
        self._lost("the connection was lost")

    # ------------------------------------------------------------------------------------------- pieces

    def _lost(self, why: str) -> None:
        self.is_open = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._under_way:
            self._under_way.popleft()[0].returns(Lost(why, url=self.url))

    def _look_after(self) -> None:
        """End a connection that has not answered for too long; come again while anything is under way."""
        self._watch = None
        if not self._under_way:
            return
        due = self._under_way[0][2] + self._timeout
        if due <= self._loop.time():
            self._lost(f"no answer within {self._timeout:g} s")
            self._transport.abort()
        else:
            self._watch = self._loop.call_at(due, self._look_after)


async def connected(make: Callable[[], Any], timeout: float, url: str) -> Link:
    """A link over a new connection of redis-py's (or its sister's), made by *make*."""
    connection = make()
    try:
        async with asyncio.timeout(timeout):
            await connection.connect()
    except TimeoutError:
        await _dropped(connection)
        raise Unreachable(f"cannot connect within {timeout:g} s", url=url) from None
    except OSError as error:
        await _dropped(connection)
        raise Unreachable(f"cannot connect: {type(error).__name__}", url=url) from None
    except asyncio.CancelledError:
        await _dropped(connection)
        raise
    except Exception as error:  # noqa: BLE001 - the client's own kinds, which are several packages'
        await _dropped(connection)
        raise _refusal(error, url) from None
    if getattr(connection, "_writer", None) is None:
        await _dropped(connection)
        raise StoreError(f"{type(connection).__name__} is not a connection of redis-py or valkey-py", url=url)
    return Link(connection, timeout, url)


def _refusal(error: Exception, url: str) -> StoreError:
    """What redis-py says of a connection that could not be set up, without its details."""
    kind, text = type(error).__name__, str(error)
    if kind in _REFUSED or text.startswith(_REFUSED) or "invalid username-password" in text:
        return StoreError("the server refuses this user or password", url=url)
    if "certificate" in text.lower() or "CERTIFICATE" in text:
        return StoreError("the server's certificate is not trusted", url=url)
    return Unreachable(f"cannot connect: {kind}", url=url)


async def _dropped(connection: Any) -> None:
    with contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)
