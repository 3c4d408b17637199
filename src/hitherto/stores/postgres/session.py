"""What an open store works with: its links, what is gathered over them, and the checks made when it opens."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from hitherto.document import Answer, Claim, Terms
from hitherto.errors import SchemaError, StoreError, StoreUnavailable, StoreWarning
from hitherto.records import Stored
from hitherto.stores.gather import Gather
from hitherto.stores.postgres import calls, columns, schema
from hitherto.stores.postgres.calls import Accept, Settle
from hitherto.stores.postgres.columns import Change, Loaded, Place
from hitherto.stores.postgres.combine import Combiner
from hitherto.stores.postgres.link import Link, Own, Users

OLDEST: Final = 130_000
_LOAD: Final = columns.call_of("load_v1", 2)
_READ: Final = columns.call_of("read_v1", 2)
_WRITE: Final = columns.call_of("write_v1", columns.WIDTH)
_RENEW: Final = columns.call_of("renew_v1", 5)
_SERVER: Final = (
    "SELECT current_setting('server_version_num')::integer AS version, pg_is_in_recovery() AS recovering, "
    "current_setting('transaction_read_only') = 'on' AS read_only, "
    "current_setting('synchronous_commit') AS durability, pg_backend_pid() AS pid, "
    "current_setting('server_encoding') AS encoding"
)
SETTINGS: Final = (
    "SELECT current_setting('server_version') AS software, current_setting('fsync') AS fsync, "
    "current_setting('synchronous_commit') AS durability"
)
LOST: Final = {
    "off": "the newest acknowledged changes: synchronous_commit or fsync is off",
    "local": "nothing of this server; a failover to a standby may lose the newest changes",
    "remote_write": "nothing, unless this server and its standby crash together",
    "on": "nothing",
    "remote_apply": "nothing",
}
_I = TypeVar("_I", Accept, Settle)


class Session:
    """Everything between ``open`` and ``close``."""

    def __init__(
        self,
        source: Own | Users,
        url: str,
        schema_name: str,
        timeout: float,
        connections: int,
        clock: Callable[[], float] | None,
    ) -> None:
        self.pid, self.loop = os.getpid(), asyncio.get_running_loop()
        self._clock, self._timeout, self._url = clock, timeout, url
        links = [Link(source, url, timeout) for _ in range(connections)]
        self._links = links
        self._accepting, self._settling, self._others = links[0], links[1 % len(links)], links[-1]
        self._schema = schema_name
        self.accepts: Gather[Accept, Answer | None] = self._gather(self._accept)
        self.settles: Gather[Settle, Answer | None] = self._gather(self._settle)
        self.loads: Gather[Place, Loaded] = self._gather(self._load)
        self.reads: Gather[Place, Stored | None] = self._gather(self._read)
        self.writes: Gather[columns.Delta, bool] = self._gather(self._write)
        self.combine = Combiner(self.loads, self.put, url, timeout)
        self._sql: dict[str, str] = {}

    def _gather(self, send: Callable[[list[Any]], Awaitable[Sequence[Any]]]) -> Gather[Any, Any]:
        async def isolated(items: list[Any]) -> Sequence[Any]:
            try:
                return await send(items)
            except StoreError as error:
                if error.retryable or isinstance(error, SchemaError) or len(items) == 1:
                    raise
                return [await _alone(send, item) for item in items]

        return Gather(isolated, max_batch=200, timeout=self._timeout, url=self._url)

    @property
    def moment(self) -> float | None:
        """The injected time, or ``None`` for the server's own."""
        return None if self._clock is None else self._clock()

    async def query(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """The rows of any other statement, written for the default schema."""
        return await self._others.call(self._text(sql), *arguments)

    async def put(self, change: Change) -> bool:
        """Write a changed document, if nobody was in between."""
        one = columns.delta(change)
        return await self.writes(one, columns.weight(one))

    async def renew(self, claims: Sequence[tuple[Place, Claim]], terms: Terms) -> set[int]:
        """Renew leases in one trip; the indexes of those that are held."""
        rows = await self._settling.call(
            self._text(_RENEW),
            self.moment,
            terms.lease,
            [place.digest for place, _ in claims],
            [claim.epoch for _, claim in claims],
            ["{" + ",".join(map(str, claim.seqs)) + "}" for _, claim in claims],
        )
        return {row["place"] - 1 for row in rows}

    async def close(self) -> None:
        """Let what is under way come to its end, then give the connections back."""
        gathers: list[Gather[Any, Any]] = [self.accepts, self.settles, self.loads, self.reads, self.writes]
        closed = StoreUnavailable("the store was closed meanwhile", url=self._url)
        try:
            async with asyncio.timeout(self._timeout):
                await self.combine.drained()
                for gather in gathers:
                    await gather.drained()
        except TimeoutError:
            pass
        for gather in gathers:
            gather.close(closed)
        for link in self._links:
            await link.close()

    # ----------------------------------------------------------------------------------------------- batches

    def _text(self, sql: str) -> str:
        text = self._sql.get(sql)
        if text is None:
            text = self._sql[sql] = schema.in_schema(sql, self._schema)
        return text

    async def _accept(self, items: list[Accept]) -> Sequence[Answer | None]:
        return await self._by_terms(
            self._accepting, calls.ACCEPT, items, calls.accept_arguments, calls.accept_answer
        )

    async def _settle(self, items: list[Settle]) -> Sequence[Answer | None]:
        return await self._by_terms(
            self._settling, calls.SETTLE, items, calls.settle_arguments, calls.settle_answer
        )

    async def _by_terms(
        self,
        link: Link,
        sql: str,
        items: list[_I],
        arguments: Callable[[Sequence[_I], float | None], list[Any]],
        answer: Callable[[_I, Any], Answer | None],
    ) -> Sequence[Answer | None]:
        """One call for all items of the same terms; nearly always they are all of the same."""
        answers: list[Answer | None] = [None] * len(items)
        groups: dict[Terms, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(item.terms, []).append(index)
        for indexes in groups.values():
            group = [items[index] for index in indexes]
            for row in await link.call(self._text(sql), *arguments(group, self.moment)):
                index = row["place"] - 1
                answers[indexes[index]] = answer(group[index], row)
        return answers

    async def _load(self, places: list[Place]) -> Sequence[Loaded]:
        rows = await self._others.call(self._text(_LOAD), self.moment, [place.digest for place in places])
        return [columns.got_document(row) for row in sorted(rows, key=_place)]

    async def _read(self, places: list[Place]) -> Sequence[Stored | None]:
        rows = await self._others.call(self._text(_READ), self.moment, [place.digest for place in places])
        return [columns.got_live(row) for row in sorted(rows, key=_place)]

    async def _write(self, deltas: list[columns.Delta]) -> Sequence[bool]:
        rows = await self._others.call(self._text(_WRITE), *columns.write_arguments(deltas))
        return [row["written"] for row in sorted(rows, key=_place)]


def _place(row: Any) -> int:
    place: int = row["place"]
    return place


async def _alone(send: Callable[[list[Any]], Awaitable[Sequence[Any]]], item: Any) -> Any:
    try:
        return (await send([item]))[0]
    except StoreError as error:
        return error


async def examined(connection: Any, url: str) -> bool:
    """Whether a pooler stands between us and the server; refuses a server that cannot be written to."""
    server = await connection.fetchrow(_SERVER)
    if server["version"] < OLDEST:
        raise StoreError(
            f"PostgreSQL {server['version'] // 10_000} is too old; 13 or newer is needed", url=url
        )
    if server["encoding"] != "UTF8":
        raise StoreError(
            f"the database's encoding is {server['encoding']}, which does not hold every text; create "
            "one with ENCODING 'UTF8'",
            url=url,
        )
    if server["recovering"] or server["read_only"]:
        raise StoreUnavailable(
            "this PostgreSQL takes no writes (a standby, or read-only); connect to the primary, for example "
            "with ?target_session_attrs=read-write and all hosts in the URL",
            url=url,
        )
    if server["durability"] == "off":
        warnings.warn(
            "synchronous_commit is off for this role or database: a crash of the server may forget the "
            "newest acknowledged changes; set it on",
            StoreWarning,
            stacklevel=6,
        )
    pids = {server["pid"], connection.get_server_pid()}
    for _ in range(2):
        async with connection.transaction():
            pids.add(await connection.fetchval("SELECT pg_backend_pid()"))
    return len(pids) > 1


async def prepare_schema(connection: Any, name: str, url: str, auto_migrate: bool) -> None:
    """Create or migrate the schema, or say that this must be done."""
    todo = [one for one in await schema.missing(connection, name, url) if one.phase == "pre"]
    if not todo:
        return
    if not auto_migrate:
        raise SchemaError(
            f"schema {name} is missing or behind by {len(todo)} migrations; run `hitherto migrate URL`, or "
            "apply the text of `hitherto migrate URL --sql`",
            url=url,
        )
    try:
        await schema.migrate(connection, name, url, post=False)
    except Exception as error:
        if getattr(error, "sqlstate", None) != "42501":
            raise
        raise SchemaError(
            f"schema {name} is missing or behind and this role may not create it; let one that may apply the "
            "text of `hitherto migrate URL --sql`",
            url=url,
        ) from error
