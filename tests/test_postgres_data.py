"""What lies in PostgreSQL: exact for us, readable for people with psql; and lists that go along indexes."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitherto import codec
from hitherto.addresses import Address, encode
from hitherto.document import Event, Terms
from hitherto.overlap import Queue
from hitherto.records import Patch, Record
from hitherto.stores.postgres import PostgresStore, listing, options, schema
from servers.pgwire import Pg

TERMS = Terms()


@pytest.fixture(scope="module")
def url(postgres_unsafe_server):
    name = postgres_unsafe_server.create_database()
    yield postgres_unsafe_server.url_of(name)
    postgres_unsafe_server.drop_database(name)


@pytest.fixture
def ask(url):
    """What psql would show."""
    with Pg(url) as connection:
        yield connection.query


# -------------------------------------------------------------------------------------- readable and exact


def shown(value):
    """A value as it is read with SQL: NUL, which PostgreSQL cannot hold, is the replacement character."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [shown(one) for one in value]
    if isinstance(value, dict):
        return {shown(name): shown(one) for name, one in value.items()}
    return value


def nested(depth, value="end"):
    return value if depth == 0 else nested(depth - 1, [value] if depth % 2 else {"in": value})


EXAMPLE = {
    "name": "Ann",
    "large": 2**70,
    "below": -(10**40),
    "float": 1e16,
    "whole": 10**16,
    "zero": -0.0,
    "tiny": 5e-324,
    "third": 1 / 3,
    "nul": "a\x00b\\u0000\\\x00",
    "sub": "\x1a0\x1a1\x1a",
    "astral": "𝒳😀\u2028",
    "quote\"'\\": ["it's", '"', "\\"],
    "k\x00ey\x1a0": {"\x00": "\x1a"},
    "none": None,
    "yes": True,
    "deep": nested(60),
    "": {},
}


async def test_people_read_it_with_psql_and_we_get_back_exactly_what_was_put(url, ask):
    async with PostgresStore(url) as store:
        await store.set_state("bot", ("room", 7), Record("sign\x00up", "na\x1ame", EXAMPLE))
        back = await store.get_state("bot", ("room", 7))
    assert repr(back.data) == repr(EXAMPLE)
    assert (back.flow, back.state) == ("sign\x00up", "na\x1ame")
    here = "FROM hitherto.conversation WHERE address = '{}'".format(encode(Address("bot", "", ("room", 7))))

    def one(expression):
        return ask(f"SELECT {expression} {here}")[0][0]

    assert one("data->>'name'") == "Ann"
    assert one("data->>'large'") == str(2**70)
    assert one("(data->>'large')::numeric + 1") == str(2**70 + 1)
    assert one("data->>'below'") == str(-(10**40))
    assert one("data->>'float'") == "1e16"
    assert one("data->>'whole'") == str(10**16)
    assert one("data->>'nul'") == "a\ufffdb\\u0000\\\ufffd"
    assert one("data->>'astral'") == "𝒳😀\u2028"
    assert one("data->>'sub'") == "\x1a0\x1a1\x1a"
    assert one("data->>'none'") is None
    assert one("data->'deep'->0->'in'->0->'in' IS NOT NULL") == "t"
    assert one("flow") == "sign\ufffdup"
    assert one("state") == "na\x1ame"
    assert json.loads(one("data")) == shown(EXAMPLE)


async def test_the_view_tells_what_a_conversation_is_doing(url, ask):
    async with PostgresStore(url, schema="doing") as store:
        place = Address("bot", "", (1,))
        granted = await store.accept(place, Event("1", b"{}"), Queue(), "ann", store.op(), TERMS)
        await store.accept(place, Event("2", b"{}"), Queue(), "ann", store.op(), TERMS)
        columns = "flow, data IS NULL, pending, dead, seen, owner, leased_until > now(), epoch"
        assert ask(f"SELECT {columns} FROM doing.conversation") == [
            (None, "t", "2", "0", "0", "ann", "t", "1")
        ]
        patch = Patch(set={"a": b"1"}, moved=True, flow="f", state="s")
        await store.settle(place, granted.grant.claim, store.op(), TERMS, patch=patch)
        await store.set_state("bot", (2,), Record(None, None, {}))
        assert ask(f"SELECT {columns} FROM doing.conversation WHERE flow = 'f'") == [
            ("f", "f", "1", "0", "1", "ann", "t", "1")
        ]
        assert ask("SELECT data::text FROM doing.conversation ORDER BY id") == [('{"a":1}',), ("{}",)]


DOCUMENTED = (Path(__file__).parents[1] / "docs/postgres.md").read_text()
STATEMENTS = [
    statement
    for block in re.findall(r"```sql\n(.*?)```", DOCUMENTED, re.DOTALL)
    for statement in block.split(";\n")
    if statement.startswith("SELECT")
]


async def test_what_the_documentation_proposes_to_type(url, ask):
    async with PostgresStore(url) as store:
        await store.set_state("bot", (9,), Record("signup", "mail", {"name": "Ann"}))
        await store.set_state("bot", (10,), Record("order", "pay", {"price": 2**70}))
    first, *_, last = [ask(statement) for statement in STATEMENTS]
    assert len(STATEMENTS) == 4
    assert first == [("bot//9", "mail", "Ann")]
    assert last == [(str(2**70),)]
    for name in options.OURS:
        assert f"| `{name}` |" in DOCUMENTED
    for one in schema.migrations():
        assert f"applied {one.number:04}_{one.phase}_{one.name}\n" in DOCUMENTED
    for line in schema.migration_sql().splitlines():
        if line.startswith("-- GRANT"):
            assert line.removeprefix("-- ").replace('"', "") in DOCUMENTED


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text("\0\x1a01\\u\"'", max_size=8)
LEAVES = (
    st.none() | st.booleans() | TEXT | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**200), 2**200) | st.sampled_from([1e16, 10**16, 2**53 + 1, 1e300, -0.0])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
DATA = st.dictionaries(TEXT, VALUES, max_size=5)


@pytest.fixture(scope="module")
def held(url):
    """A store and a loop that every example shares."""
    with asyncio.Runner() as runner:
        store = PostgresStore(url, schema="held")
        runner.run(store.open())
        with Pg(url) as connection:
            yield runner, store, connection.query
        runner.run(store.close())


async def through_a_turn(store, key, data):
    address = Address("bot", "", (key,))
    answer = await store.accept(address, Event(f"{key}", b"{}"), Queue(), "me", store.op(), TERMS)
    patch = Patch(set=codec.encode(data), moved=True, flow="f", state="s")
    settled = await store.settle(address, answer.grant.claim, store.op(), TERMS, patch=patch)
    assert settled.status == "committed"


_keys = iter(range(10**9))


@given(DATA, st.booleans())
@settings(max_examples=150)
def test_whatever_can_be_stored_is_exact_and_readable(held, data, by_turn):
    runner, store, ask = held
    key = next(_keys)
    runner.run(through_a_turn(store, key, data) if by_turn else store.set_data("bot", (key,), data))
    assert repr(runner.run(store.get_data("bot", (key,)))) == repr(data)
    address = encode(Address("bot", "", (key,)))
    (whole,) = ask(f"SELECT data FROM held.conversation WHERE address = '{address}'")[0]
    pairs = json.loads(whole, object_pairs_hook=list)
    assert [name for name, _ in pairs] == [shown(name) for name in data]
    assert as_pairs(shown_pairs(data)) == pairs
    rows = ask(
        f"SELECT f.value ->> 0, f.value::text FROM held.conversation AS c, json_each(c.data) WITH ORDINALITY "
        f"AS g (key, value, n), LATERAL (SELECT json_build_array(g.value) AS value) AS f "
        f"WHERE c.address = '{address}' ORDER BY g.n"
    )
    for (text, _), value in zip(rows, data.values(), strict=True):
        if isinstance(value, str):
            assert text == shown(value)
        elif value is None or isinstance(value, bool):
            assert text == {None: None, True: "true", False: "false"}[value]
        elif isinstance(value, int | float):
            assert repr(type(value)(text)) == repr(value)


def shown_pairs(value):
    """As :func:`shown`, but two names that look alike then are still two."""
    if isinstance(value, dict):
        return [(shown(name), shown_pairs(one)) for name, one in value.items()]
    if isinstance(value, list):
        return [shown_pairs(one) for one in value]
    return shown(value)


def as_pairs(value):
    """Tuples as what ``json`` makes of pairs."""
    if isinstance(value, list):
        return [(one[0], as_pairs(one[1])) if isinstance(one, tuple) else as_pairs(one) for one in value]
    return value


# ------------------------------------------------------------------------------------------------ many rows

FILL = """
INSERT INTO many.document (digest, address, version, epoch, recorded, flow, state, names, texts, touched)
    SELECT sha256(a::bytea), a, 1, 1, true, 'f' || n % 5, 's', '{n}', ARRAY[n::text], n
    FROM (SELECT n, replace('TEXT', '123456', n::text) AS a FROM generate_series(100001, 200000) AS n) AS x;
INSERT INTO many.wake (conversation, at) SELECT id, touched FROM many.document WHERE id % 3 = 0;
INSERT INTO many.inbox (conversation, seq, payload, accepted_at)
    SELECT id, 1, '{}', 0 FROM many.document WHERE id % 3 = 0;
INSERT INTO many.dead_letter (conversation, seq, place, payload, accepted_at, attempts, error, died_at)
    SELECT id, 2, 1, '{}', 0, 1, '', 0 FROM many.document WHERE id % 7 = 0;
ANALYZE many.document; ANALYZE many.wake; ANALYZE many.inbox; ANALYZE many.dead_letter;
"""


@pytest.fixture(scope="module")
def many(url):
    """A hundred thousand conversations, a third of which want to be looked at."""
    with Pg(url, timeout=100) as connection:
        connection.query(schema.migration_sql("many"))
        connection.query(FILL.replace("TEXT", encode(Address("bot", "", (123456,)))))
    return PostgresStore(url, schema="many")


async def plans_of(url, mode, work):
    """The plans of every statement that *work* sends."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"SET plan_cache_mode = {mode}")
    plans = []

    async def explain(sql, *arguments):
        rows = await connection.fetch("EXPLAIN " + schema.in_schema(sql, "many"), *arguments)
        plans.append("\n".join(row[0] for row in rows))
        return []

    await work(explain)
    await connection.close()
    return plans


async def drained(pages):
    return [one async for one in pages]


LISTS = {
    "due": (lambda query: listing.due(query, "bot", 150_000.0, 100), "wake_at"),
    "browse": (lambda query: listing.browse(query, "bot", None, None, "", 50), "document_address"),
    "browse a flow": (lambda query: listing.browse(query, "bot", "f1", "s", "", 50), "document_address"),
    "scan all": (lambda query: drained(listing.scan(query, "bot", "all", None)), "document_address"),
    "scan due": (lambda query: drained(listing.scan(query, "bot", "due", 150_000.0)), "wake_pkey"),
    "scan lease": (lambda query: drained(listing.scan(query, "bot", "lease", None)), "wake_pkey"),
    "scan pending": (lambda query: drained(listing.scan(query, "bot", "pending", None)), "wake_pkey"),
    "scan dead": (lambda query: drained(listing.scan(query, "bot", "dead", None)), "dead_letter_pkey"),
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", LISTS)
async def test_lists_go_along_an_index(url, many, name, mode):
    work, index = LISTS[name]
    (plan,) = await plans_of(url, mode, work)
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_neither_turns_nor_the_sweeper_read_a_table_through(url, many, ask):
    scans = (
        "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'many' "
        "AND relname <> 'migration' ORDER BY 1"
    )
    before = ask(scans)
    async with many as store:
        for number in range(12):
            place = Address("bot", "", (number * 1000,))
            answer = await store.accept(place, Event("x", b"{}"), Queue(), "me", store.op(), TERMS)
            if answer.grant is not None:
                await store.renew([(place, answer.grant.claim)], TERMS)
                await store.settle(place, answer.grant.claim, store.op(), TERMS, patch=Patch(set={"n": b"1"}))
            await store.update_data("bot", (number,), {"a": 1})
            await store.get_data("bot", (number,))
            await store.take_over(Address("bot", "", (100_002 + number,)), "me", store.op(), TERMS)
            await store.expire("bot", 100, TERMS)
            assert len(await store.due("bot", 50)) == 50
            page = await store.browse("bot", limit=20)
            await store.browse("bot", flow="f3", after=page[-1].cursor, limit=20)
    assert ask(scans) == before
