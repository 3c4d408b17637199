"""Connections to PostgreSQL that come back: one statement at a time, each in one trip, each within its time.

A link prepares what it calls, so that a call is one trip. Behind a pooler that hands every transaction to
another server connection nothing can be prepared: there the text travels with each call, still in one trip.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from hitherto.stores.postgres.failures import AT_ONCE, FAILURES, POOLED, is_link_lost, translated

_ATTEMPTS = 5
_TYPES = (
    "SELECT $1::bytea[], $2::bigint[], $3::integer[], $4::float8[], $5::boolean[], $6::text[], $7::jsonb[]"
)


class Own:
    """Connections of our own, by a DSN."""

    keeps = True

    def __init__(self, dsn: str, *, looks: bool = False) -> None:
        self._dsn, self._looks = dsn, looks
        self.pooled = False

    def careful(self) -> Own:
        """The same, for a connection of which it is not known yet whether a pooler is in between."""
        return Own(self._dsn, looks=True)

    async def take(self, timeout: float) -> Any:
        """A new connection.

        The driver asks the server once about the types of arrays, with a setting that speeds it up from
        seconds to milliseconds. Behind a pooler that setting would reach some other connection, unless all of
        it is one transaction.
        """
        connection = await asyncpg.connect(
            self._dsn,
            timeout=timeout,
            statement_cache_size=0 if self.pooled or self._looks else 100,
            max_cached_statement_lifetime=0,
        )
        if self.pooled:
            try:
                async with connection.transaction():
                    await connection.prepare(_TYPES)
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def give(self, connection: Any, broken: bool) -> None:
        """Close it; at once if it is broken."""
        if broken:
            connection.terminate()
        else:
            with contextlib.suppress(Exception):
                await connection.close(timeout=2)


class Users:
    """Connections out of a pool of the user's, which is never closed for them."""

    keeps = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.pooled = False

    async def take(self, timeout: float) -> Any:
        """A connection of the pool."""
        return await self._pool.acquire(timeout=timeout)

    async def give(self, connection: Any, broken: bool) -> None:
        """Back into the pool, which replaces it when it is broken."""
        if broken:
            with contextlib.suppress(Exception):
                connection.terminate()
        with contextlib.suppress(Exception):
            await self._pool.release(connection, timeout=2)


class Link:
    """One connection at a time, made when it is needed and again when it is lost."""

    def __init__(self, source: Own | Users, url: str, timeout: float) -> None:
        self._source, self._url, self._timeout = source, url, timeout
        self._lock = asyncio.Lock()
        self._connection: Any = None
        self._prepared: dict[str, Any] = {}

    async def call(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """The rows of one statement, which is a transaction of its own.

        Repeated here only where nothing was done: the server chose it as a deadlock's victim. Every other
        failure is a ``StoreError``; one that may pass is retryable: the caller knows what may be repeated.
        """
        try:
            async with asyncio.timeout(self._timeout), self._lock:
                for attempt in range(_ATTEMPTS):
                    try:
                        return await self._once(sql, arguments)
                    except asyncpg.PostgresError as error:
                        if attempt == _ATTEMPTS - 1 or not self._may_repeat(error.sqlstate):
                            raise
                        await asyncio.sleep(0.005 * 2**attempt)
        except FAILURES as e:
            raise translated(e, self._url) from e
        raise AssertionError("unreachable")

    async def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Let *work* have the connection."""
        try:
            async with asyncio.timeout(self._timeout), self._lock:
                return await self._guarded(work)
        except FAILURES as e:
            raise translated(e, self._url) from e

    async def close(self) -> None:
        """Give the connection back."""
        async with self._lock:
            await self._leave(broken=False)

    def _may_repeat(self, state: str | None) -> bool:
        """Whether nothing was done and the same call may succeed now; a pooler that shows itself is noted."""
        if state in POOLED and self._source.keeps:
            self._source.pooled = True
            return True
        return state in AT_ONCE

    async def _once(self, sql: str, arguments: tuple[Any, ...]) -> Sequence[Any]:
        async def work(connection: Any) -> Any:
            if not self._source.keeps:
                return await connection.fetch(sql, *arguments)
            statement = self._prepared.get(sql)
            if statement is None:
                statement = self._prepared[sql] = await connection.prepare(sql)
            return await statement.fetch(*arguments)

        rows: Sequence[Any] = await self._guarded(work)
        return rows

    async def _guarded(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        broken = True
        try:
            result = await work(await self._connected())
            broken = False
            return result
        except asyncpg.PostgresError as error:
            broken = is_link_lost(error) or error.sqlstate in POOLED
            raise
        finally:
            if broken or not self._source.keeps:
                await self._leave(broken)

    async def _connected(self) -> Any:
        if self._connection is not None and self._connection.is_closed():
            await self._leave(broken=True)
        if self._connection is None:
            self._connection = await self._source.take(self._timeout)
        return self._connection

    async def _leave(self, broken: bool) -> None:
        connection, self._connection = self._connection, None
        self._prepared.clear()
        if connection is not None:
            await self._source.give(connection, broken)
