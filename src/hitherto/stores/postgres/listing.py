"""Queries over many conversations: a page at a time, along an index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from hitherto import addresses
from hitherto.addresses import Address
from hitherto.document import Terms
from hitherto.stores.base import KINDS, Kind, Listed
from hitherto.stores.postgres.columns import call_of, got_text, put_text

Query: TypeAlias = Callable[..., Awaitable[Sequence[Any]]]

PAGE: Final = 500
NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::double precision AS at"
_MOMENT: Final = "coalesce($3, extract(epoch FROM clock_timestamp())::double precision)"
_START: Final = 'left(d.address, 600) COLLATE "C"'
_WHOLE: Final = 'd.address COLLATE "C"'
_IN_RANGE: Final = f"{_WHOLE} >= $1 AND {_WHOLE} < $2"
_BEHIND: Final = (
    f"{_IN_RANGE} AND {_START} >= left(greatest($1, $3), 600) AND {_START} < $2 AND {_WHOLE} > $3 "
    "AND d.version > 0"
)
_ORDER: Final = f"ORDER BY {_START}, {_WHOLE}"
_DOCUMENTS: Final = f'SELECT d.address FROM "hitherto".document AS d WHERE {_BEHIND}'  # noqa: S608
_CLOCKLESS: Final = "coalesce($3, 0.0) IS NOT NULL"  # $3 is in every one of these statements, used or not
_ACTIVE: Final = (  # OFFSET 0 keeps the planner from reading all documents to find the few that are active
    'SELECT d.address, w.conversation AS id FROM "hitherto".wake AS w CROSS JOIN LATERAL ('  # noqa: S608
    'SELECT e.address, e.deadline FROM "hitherto".document AS e WHERE e.id = w.conversation OFFSET 0'
    f") AS d WHERE {_IN_RANGE}"
)
_BY_ID: Final = {
    "due": f"{_ACTIVE} AND w.at <= {_MOMENT} AND w.conversation > $4 ORDER BY w.conversation LIMIT {PAGE}",
    "lease": f"{_ACTIVE} AND d.deadline IS NOT NULL AND {_CLOCKLESS} AND w.conversation > $4 "
    f"ORDER BY w.conversation LIMIT {PAGE}",
    "pending": f"{_ACTIVE} AND {_CLOCKLESS} AND w.conversation > $4 AND EXISTS ("
    'SELECT FROM "hitherto".inbox AS i WHERE i.conversation = w.conversation) '
    f"ORDER BY w.conversation LIMIT {PAGE}",
    "dead": "SELECT d.address, l.conversation AS id FROM ("  # noqa: S608
    'SELECT DISTINCT conversation FROM "hitherto".dead_letter WHERE conversation > $4 ORDER BY conversation'
    f') AS l JOIN "hitherto".document AS d ON d.id = l.conversation WHERE {_IN_RANGE} '
    f"AND {_CLOCKLESS} ORDER BY l.conversation LIMIT {PAGE}",
}
_DUE: Final = f"{_ACTIVE} AND w.at <= {_MOMENT} ORDER BY w.at LIMIT $4"
_COUNTS: Final = (
    'SELECT d.flow, d.state, count(*) AS number FROM "hitherto".document AS d '  # noqa: S608
    f"WHERE {_IN_RANGE} AND {_START} >= left($1, 600) AND {_START} < $2 AND d.recorded "
    "GROUP BY d.flow, d.state"
)
_LISTED: Final = (
    "SELECT d.address, d.flow, d.state, d.recorded, d.version, d.touched, d.deadline, "  # noqa: S608
    '(SELECT count(*) FROM "hitherto".inbox AS i WHERE i.conversation = d.id) AS pending, '
    '(SELECT count(*) FROM "hitherto".dead_letter AS l WHERE l.conversation = d.id) AS dead, '
    '(SELECT w.at FROM "hitherto".wake AS w WHERE w.conversation = d.id) AS wake_at '
    f'FROM "hitherto".document AS d WHERE {_BEHIND} '
)
_STALE: Final = call_of("tidy_v1", 8)


def bounds(bot: str, realm: str | None) -> tuple[str, str]:
    """Between which texts the addresses of a bot (and of one of its realms) lie."""
    text = addresses.encode(Address(bot, realm or "", ()))
    prefix = text.removesuffix("()") if realm is not None else text.removesuffix("/()")
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


async def scan(query: Query, bot: str, kind: Kind, moment: float | None) -> AsyncIterator[str]:
    """The addresses filed under *kind*."""
    if kind in _BY_ID:
        last = 0
        while rows := await query(_BY_ID[kind], *bounds(bot, ""), moment, last):
            for row in rows:
                yield row["address"]
            last = rows[-1]["id"]
            if len(rows) < PAGE:
                return
        return
    low, high = bounds(bot, None if kind == "everything" else "" if kind in KINDS else kind)
    recorded = "" if kind in ("all", "everything") else "AND d.recorded "
    behind = ""
    while rows := await query(f"{_DOCUMENTS} {recorded}{_ORDER} LIMIT {PAGE}", low, high, behind):
        for row in rows:
            yield row["address"]
        behind = rows[-1]["address"]
        if len(rows) < PAGE:
            return


async def due(query: Query, bot: str, moment: float | None, limit: int) -> list[str]:
    """What has waited longest for the sweeper."""
    return [row["address"] for row in await query(_DUE, *bounds(bot, ""), moment, limit)]


async def stale(
    query: Query, bot: str, behind: str, moment: float | None, limit: int, terms: Terms
) -> tuple[list[str], list[str]]:
    """The next addresses of a bot in all its realms, and those among them in which something is over."""
    low, high = bounds(bot, None)
    rows = await query(
        _STALE, moment, low, high, behind, limit, terms.seen_age, terms.ops_age, terms.tombstone
    )
    return [row["address"] for row in rows], [row["address"] for row in rows if row["stale"]]


async def counts(query: Query, bot: str) -> list[tuple[str | None, str | None, int]]:
    """How many records there are in each state of each flow."""
    rows = await query(_COUNTS, *bounds(bot, ""))
    found = [(got_text(row["flow"]), got_text(row["state"]), row["number"]) for row in rows]
    return sorted(found, key=lambda row: (row[0] is not None, row[0] or "", row[1] is not None, row[1] or ""))


async def browse(
    query: Query, bot: str, flow: str | None, state: str | None, after: str, limit: int
) -> list[Listed]:
    """See :meth:`hitherto.stores.base.Store.browse`."""
    sql, arguments = _LISTED, [*bounds(bot, ""), after, limit]
    if flow is not None:
        arguments.append(put_text(flow or None))
        sql += "AND d.recorded AND d.flow IS NOT DISTINCT FROM $5 "
        if state is not None:
            arguments.append(put_text(state or None))
            sql += "AND d.state IS NOT DISTINCT FROM $6 "
    return [_listed(row) for row in await query(f"{sql}{_ORDER} LIMIT $4", *arguments)]


def _listed(row: Any) -> Listed:
    return Listed(
        row["address"], addresses.decode(row["address"]).key,
        got_text(row["flow"]) if row["recorded"] else None,
        got_text(row["state"]) if row["recorded"] else None, row["recorded"], row["version"], row["touched"],
        row["pending"], row["dead"], row["deadline"], row["wake_at"],
    )  # fmt: skip
