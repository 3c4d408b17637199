"""Queries over many conversations: always a page at a time, always along an index."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from hitherto import addresses, protocol
from hitherto.addresses import Address
from hitherto.records import Stored
from hitherto.stores.base import KINDS, Kind, Listed
from hitherto.stores.sqlite import rows
from hitherto.stores.sqlite.session import Session

Filed: TypeAlias = tuple[str, Stored]
Place: TypeAlias = tuple[str | None, str | None]

PAGE: Final = 500
COUNTED_AT_ONCE: Final = 20_000
_ACTIVE: Final = "FROM conversation INDEXED BY conversation_due WHERE bot=? AND realm='' AND wake_at<=?"
_BY_NUMBER: Final = {
    "due": f"SELECT id, address {_ACTIVE} AND id>? ORDER BY id LIMIT ?",
    "pending": f"SELECT id, address {_ACTIVE} AND pending>0 AND id>? ORDER BY id LIMIT ?",
    "lease": f"SELECT id, address {_ACTIVE} AND lease_until IS NOT NULL AND id>? ORDER BY id LIMIT ?",
    "dead": "SELECT id, address FROM conversation INDEXED BY conversation_dead "
    "WHERE bot=? AND realm='' AND dead>0 AND ?>0 AND id>? ORDER BY id LIMIT ?",
}
_DUE: Final = f"SELECT address {_ACTIVE} ORDER BY wake_at LIMIT ?"
_RANGE: Final = "SELECT address FROM conversation WHERE address>? AND address<?"
_ANY: Final = f"{_RANGE} ORDER BY address LIMIT ?"
_RECORDED: Final = f"{_RANGE} AND recorded>0 ORDER BY address LIMIT ?"
_RECORDS: Final = _RECORDED.replace("address", f"address, {rows.COLUMNS}", 1)
_FILED: Final = "FROM conversation INDEXED BY conversation_state WHERE bot=? AND realm='' AND recorded>0"
_NEXT_FLOW: Final = f"SELECT flow {_FILED} AND flow>? ORDER BY flow LIMIT 1"
_COUNTED: Final = (
    f"SELECT count(*), max(address) FROM (SELECT address {_FILED} AND flow IS ? AND state IS ? AND address>? "  # noqa: S608
    "ORDER BY address LIMIT ?)"
)
_NEXT_STATE: Final = f"SELECT state {_FILED} AND flow IS ? AND state>? ORDER BY state LIMIT 1"
_IN_STATE: Final = (
    f"SELECT address {_FILED} AND flow IS ? AND state IS ? AND address>? ORDER BY address LIMIT ?"
)
_LISTED: Final = (
    "SELECT flow, state, recorded, version, touched, pending, dead, lease_until, wake_at "
    "FROM conversation WHERE address=?"
)


def bounds(bot: str, realm: str | None) -> tuple[str, str]:
    """Between which texts the addresses of a bot (and of one of its realms) lie."""
    text = addresses.encode(Address(bot, realm or "", ()))
    prefix = text.removesuffix("()") if realm is not None else text.removesuffix("/()")
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def page(session: Session, bot: str, kind: Kind, last: Any, now: float) -> tuple[list[str], Any]:
    """The next addresses of ``scan(bot, kind)`` after *last* (0 at first), and what to go on after."""
    session.flush()
    if kind in _BY_NUMBER:
        until = now if kind == "due" else float("inf")
        found = session.query(_BY_NUMBER[kind], (bot, until, last, PAGE))
        return [text for _, text in found], found[-1][0] if found else last
    realm = None if kind == "everything" else "" if kind in KINDS else kind
    low, high = bounds(bot, realm)
    sql = _ANY if kind in ("all", "everything") else _RECORDED
    texts = [text for (text,) in session.query(sql, (last or low, high, PAGE))]
    return texts, texts[-1] if texts else last


def records(session: Session, bot: str, kind: Kind, last: str, url: str) -> tuple[list[Filed], str]:
    """The next addresses with their records after *last* (empty at first), and what to go on after."""
    session.flush()
    low, high = bounds(bot, "" if kind in KINDS else kind)
    found = session.query(_RECORDS, (last or low, high, PAGE))
    now = session.clock()
    live = ((text, protocol.live_record(rows.read(tuple(rest), url).document, now)) for text, *rest in found)
    return [(text, one) for text, one in live if one is not None], found[-1][0] if len(found) == PAGE else ""


def due(session: Session, bot: str, limit: int) -> list[str]:
    """What has waited longest for the sweeper."""
    session.flush()
    return [text for (text,) in session.query(_DUE, (bot, session.clock(), limit))]


def everything(session: Session, bot: str, after: str, limit: int) -> list[str]:
    """The next addresses of a bot, in all its realms."""
    session.flush()
    low, high = bounds(bot, None)
    return [text for (text,) in session.query(_ANY, (after or low, high, limit))]


class Counted(NamedTuple):
    """How far counting has come: what is still to be counted, behind which address, and the numbers."""

    left: tuple[Place, ...] | None = None
    after: str = ""
    numbers: dict[Place, int] = {}  # noqa: RUF012 - never changed


def count(session: Session, bot: str, so_far: Counted) -> Counted:
    """Count some more records in each state of each flow: a part at a time, so that turns come in between."""
    session.flush()
    left, after, numbers = so_far.left, so_far.after, dict(so_far.numbers)
    if left is None:
        left = tuple(
            [(flow, state) for flow in _flows(session, bot) for state in _states(session, bot, flow)]
        )
    most = COUNTED_AT_ONCE
    while left and most > 0:
        [(number, last)] = session.query(_COUNTED, (bot, *left[0], after, most))
        numbers[left[0]] = numbers.get(left[0], 0) + number
        left, after = (left, last) if number == most else (left[1:], "")
        most -= number + 1
    return Counted(left, after, numbers)


def browse(
    session: Session, bot: str, flow: str | None, state: str | None, after: str, limit: int
) -> list[Listed]:
    """See :meth:`hitherto.stores.base.Store.browse`."""
    session.flush()
    if flow is None:
        low, high = bounds(bot, "")
        found = [text for (text,) in session.query(_ANY, (after or low, high, limit))]
    else:
        states = _states(session, bot, flow or None) if state is None else iter([state or None])
        per_state = [session.query(_IN_STATE, (bot, flow or None, one, after, limit)) for one in states]
        found = heapq.nsmallest(limit, [text for texts in per_state for (text,) in texts])
    return [_listed(text, session.query(_LISTED, (text,))[0]) for text in found]


def _flows(session: Session, bot: str) -> Iterator[str | None]:
    """The flows that records are in, found by jumping along the index."""
    yield None
    found = session.query(f"SELECT min(flow) {_FILED}", (bot,))
    while found and found[0][0] is not None:
        yield found[0][0]
        found = session.query(_NEXT_FLOW, (bot, found[0][0]))


def _states(session: Session, bot: str, flow: str | None) -> Iterator[str | None]:
    """The states that records of the flow are in, found by jumping along the index."""
    yield None
    found = session.query(f"SELECT min(state) {_FILED} AND flow IS ?", (bot, flow))
    while found and found[0][0] is not None:
        yield found[0][0]
        found = session.query(_NEXT_STATE, (bot, flow, found[0][0]))


def _listed(text: str, columns: tuple[Any, ...]) -> Listed:
    flow, state, recorded, *rest = columns
    return Listed(text, addresses.decode(text).key, flow, state, bool(recorded), *rest)
