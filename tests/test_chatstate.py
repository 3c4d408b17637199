"""Chat state where the kit cannot look: lost replies, dropped documents, leftovers, limits, odd snapshots."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hitherto import ChatState, DataError, MemoryStore, Snapshot, normalize_snapshot, open_store
from hitherto.addresses import Address
from hitherto.chatstate import NOT_OWNER, Held, Pending
from hitherto.errors import BadKey
from hitherto.protocol import EMPTY, Document, Terms, is_blank
from hitherto.stores import Store
from hitherto.testing import ManualClock
from toy_store import ToyStore


class LossyStore(ToyStore):
    """Applies a swap and then loses the reply, once; the store around it tries again."""

    lose = 0

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        applied = await super().swap(address, expected_version, document)
        if applied and self.lose:
            self.lose -= 1
            return False
        return applied


class ForgetfulStore(LossyStore):
    """The same without operation ids: the control."""

    def op(self) -> None:
        return None


class DroppingStore(ToyStore):
    """Drops documents that hold nothing, as real stores do, and lets another writer come in between."""

    between: Callable[[], Awaitable[object]] | None = None

    async def swap(self, address: Address, expected_version: int, document: Document) -> bool:
        if (work := self.between) is not None:
            self.between = None
            await work()
        swapped = await super().swap(address, expected_version, document)
        for text, (_, packed) in list(self.rows.items()):
            if is_blank(self.unpack(packed)):
                del self.rows[text]
        return swapped

    @staticmethod
    def unpack(packed: bytes) -> Document:
        import msgspec

        return msgspec.msgpack.decode(packed, type=Document)


async def opened(kind: type[ToyStore], clock: Callable[[], float] | None = None) -> Any:
    store = kind() if clock is None else kind(clock=clock)
    await store.open()
    return store, ChatState(store, "bot")


# ------------------------------------------------------------------------------------------ lost replies

Ask = Callable[[ChatState], Awaitable[Any]]


async def prepare(chat: ChatState) -> None:
    await chat.mark_seen(("tg", 1), 3)
    await chat.lock("held", "ann")
    await chat.lock("held", "bob", "queue", {"n": 1})
    await chat.subscribe("t")
    await chat.put_thread_state("t", {"a": 1})


ASKS: dict[str, Ask] = {
    "claim": lambda chat: chat.claim(("tg", 2), 3),
    "claim a duplicate": lambda chat: chat.claim(("tg", 1), 3),
    "acquire": lambda chat: chat.lock("free", "ann"),
    "queue": lambda chat: chat.lock("held", "cid", "queue"),
    "debounce": lambda chat: chat.lock("held", "cid", "debounce"),
    "busy": lambda chat: chat.lock("held", "cid"),
    "release": lambda chat: chat.release_lock("held", "ann"),
    "force release": lambda chat: chat.force_release_lock("held"),
    "update": lambda chat: chat.update_thread_state("t", {"b": 2}),
    "put": lambda chat: chat.put_thread_state("t", {"b": 2}),
    "unsubscribe": lambda chat: chat.unsubscribe("t"),
}


async def outcome(kind: type[LossyStore], ask: Ask, lose: int) -> tuple[Any, Snapshot]:
    store, chat = await opened(kind)
    await prepare(chat)
    store.lose = lose
    answer = await ask(chat)
    return answer, await chat.snapshot()


@pytest.mark.parametrize("name", ASKS)
async def test_a_lost_reply_changes_neither_the_answer_nor_the_effect(name: str) -> None:
    assert await outcome(LossyStore, ASKS[name], 1) == await outcome(LossyStore, ASKS[name], 0)


@pytest.mark.parametrize("name", ["claim", "acquire", "queue", "release", "force release"])
async def test_without_operation_ids_a_lost_reply_does_harm(name: str) -> None:
    """The control: what the test above finds is worth finding."""
    assert await outcome(ForgetfulStore, ASKS[name], 1) != await outcome(ForgetfulStore, ASKS[name], 0)


async def test_order_does_not_hang_on_the_order_of_fields() -> None:
    """Stores keep fields, not their order."""

    class ReversingStore(ToyStore):
        async def load(self, address: Address) -> Document:
            document = await super().load(address)
            if document.record is None:
                return document
            fields = dict(reversed(document.record.fields.items()))
            return replace(document, record=replace(document.record, fields=fields))

    _, chat = await opened(ReversingStore)
    await chat.lock("k", "ann")
    for owner in range(12):
        await chat.lock("k", owner, "queue")
    released = await chat.force_release_lock("k")
    assert [one.owner for one in released] == [*map(str, range(12))]


# ------------------------------------------------------------------------- documents that come and go


async def test_whoever_read_a_dropped_lock_does_not_write_over_its_successor() -> None:
    clock = ManualClock()
    store, chat = await opened(DroppingStore, clock)

    async def change_hands() -> None:
        assert await chat.release_lock("k", "ann") == []
        clock.advance(0.001)
        assert await chat.lock("k", "bob") == "acquired"

    await chat.lock("k", "ann")
    store.between = change_hands
    assert await chat.lock("k", "cid", "queue") == "queued"
    assert await chat.release_lock("k", "ann") is NOT_OWNER
    assert await chat.release_lock("k", "bob") == [Pending("cid", "queue")]


async def empty_everything(chat: ChatState) -> None:
    await chat.unsubscribe("t")
    await chat.put_thread_state("t", {})
    await chat.put_channel_state("t", {})
    await chat.force_release_lock("k")
    await chat.release_lock("with ttl", "ann")
    await chat.restore({})


async def fill_everything(chat: ChatState) -> None:
    await chat.subscribe("t")
    await chat.put_thread_state("t", {"a": 1})
    await chat.update_channel_state("t", {"a": 1})
    await chat.lock("k", "ann", metadata={"n": 1})
    await chat.lock("with ttl", "ann", ttl=5)
    await chat.mark_seen(("tg", 1), 3)


async def test_what_is_removed_leaves_nothing_behind() -> None:
    memory = MemoryStore()
    await fill_everything(ChatState(memory, "bot"))
    assert len(memory._documents) == 6
    await empty_everything(ChatState(memory, "bot"))
    assert memory._documents == {}
    store, chat = await opened(DroppingStore)
    await fill_everything(chat)
    await empty_everything(chat)
    assert store.rows == {}


async def test_pending_handed_out_is_remembered_for_a_lost_reply_only() -> None:
    """Where replies can be lost the answer stays until housekeeping, and nothing of it is listed."""
    store, chat = await opened(DroppingStore)
    await chat.lock("k", "ann")
    await chat.lock("k", "bob", "queue")
    await chat.release_lock("k", "ann")
    assert len(store.rows) == 1
    assert [address async for address in store.scan("bot", "lock")] == []
    await chat.lock("k", "ann")
    assert await chat.release_lock("k", "ann") == []
    assert store.rows == {}


async def test_housekeeping_leaves_chat_state_alone_and_takes_dead_locks() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    chat = ChatState(store, "bot")
    await fill_everything(chat)
    await chat.lock("waited for", "ann", ttl=5)
    await chat.lock("waited for", "bob", "queue")
    before = await chat.snapshot()
    assert await store.expire("bot", 100, Terms()) == 0
    clock.advance(10 * 365 * 86_400)
    assert await store.expire("bot", 100, Terms()) == 1
    after = await chat.snapshot()
    assert set(before.locks) - set(after.locks) == {"with ttl", "waited for"}
    assert after.pending_locks == before.pending_locks != {}
    assert after == Snapshot(
        **{name: getattr(before, name) for name in before.__struct_fields__ if name != "locks"},
        locks=after.locks,
    )


async def test_realms_keep_out_of_each_other_and_of_conversations() -> None:
    store = MemoryStore()
    chat, other = ChatState(store, "bot"), ChatState(store, "other")
    await fill_everything(chat)
    for kind in ("subscription", "thread", "channel", "lock"):
        assert {address.realm async for address in store.scan("bot", kind)} == {kind}
    assert [address async for address in store.scan("bot", "all")] == []
    assert await store.get_state("bot", ("t",)) is None
    assert await other.snapshot() == Snapshot()
    await other.restore({"subscriptions": ["x"]})
    await other.restore({})
    assert await chat.is_subscribed("t")


# -------------------------------------------------------------------------------------- limits, arguments


async def test_pending_is_bounded_and_the_error_changes_nothing() -> None:
    store = MemoryStore()
    chat = ChatState(store, "bot", pending_limit=2)
    await chat.lock("k", "ann")
    for owner in ("bob", "cid"):
        assert await chat.lock("k", owner, "queue") == "queued"
    before = dict(store._documents)
    with pytest.raises(DataError, match="2 entries wait"):
        await chat.lock("k", "dan", "queue")
    assert store._documents == before
    assert await chat.lock("k", "dan", "debounce") == "debounced"
    assert await chat.lock("k", "eve", "queue") == "queued"
    assert await chat.release_lock("k", "ann") == [Pending("dan", "debounce"), Pending("eve", "queue")]


async def test_ten_thousand_may_wait_by_default() -> None:
    chat = ChatState(MemoryStore(), "bot")
    await chat.restore({"locks": {"k": "ann"}, "pending_locks": {"k": [{"owner": n} for n in range(9_999)]}})
    assert await chat.lock("k", "last", "queue") == "queued"
    with pytest.raises(DataError):
        await chat.lock("k", "one more", "queue")
    line = await chat.force_release_lock("k")
    assert [one.owner for one in line] == [*map(str, range(9_999)), "last"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda chat: chat.subscribe(None),
        lambda chat: chat.subscribe(True),
        lambda chat: chat.subscribe(float("nan")),
        lambda chat: chat.subscribe("\ud800"),
        lambda chat: chat.lock(("a", "b"), "ann"),
        lambda chat: chat.lock("k", None),
        lambda chat: chat.mark_seen("ab", 3),
        lambda chat: chat.mark_seen(("tg",), 3),
        lambda chat: chat.mark_seen(("tg", 1, 2), 3),
        lambda chat: chat.claim(("tg", b"1"), 3),
        lambda chat: chat.is_duplicate(("tg", None)),
    ],
)
async def test_what_is_no_id_is_refused(ask: Ask) -> None:
    store = MemoryStore()
    with pytest.raises(BadKey):
        await ask(ChatState(store, "bot"))
    assert store._documents == {}


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None, "3"])
async def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    chat = ChatState(MemoryStore(), "bot")
    for ask in (chat.mark_seen, chat.claim):
        with pytest.raises(ValueError, match="limit"):
            await ask(("tg", 1), limit)
    assert not await chat.is_duplicate(("tg", 1))


@pytest.mark.parametrize("bot", ["", None, 7])
def test_a_bot_has_a_name(bot: Any) -> None:
    with pytest.raises(ValueError, match="bot"):
        ChatState(MemoryStore(), bot)


async def test_metadata_is_checked_also_where_it_is_not_kept() -> None:
    chat = ChatState(MemoryStore(), "bot")
    with pytest.raises(DataError):
        await chat.lock("k", "ann", "concurrent", metadata={1: 2})


def test_not_owner_is_one_value_everywhere() -> None:
    assert pickle.loads(pickle.dumps(NOT_OWNER)) is copy.deepcopy(NOT_OWNER) is NOT_OWNER
    assert repr(NOT_OWNER) == str(NOT_OWNER) == "NOT_OWNER"


async def test_a_repr_tells_no_secrets() -> None:
    chat = ChatState(MemoryStore(), "bot")
    await chat.lock("k", "ann", metadata="secret")
    await chat.lock("k", "bob", "queue", metadata="secret")
    await chat.put_thread_state("t", {"card": "secret"})
    snapshot = await chat.snapshot()
    assert "secret" not in repr((snapshot, snapshot.locks, snapshot.pending_locks, chat))


# ------------------------------------------------------------------------------------- the window, modelled


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=30))
def test_the_window_is_a_list_of_the_newest(marks: list[tuple[int, int, bool]]) -> None:
    async def run() -> None:
        chat, window = ChatState(MemoryStore(), "bot"), []
        for id, limit, as_text in marks:
            fresh = await chat.claim(("tg", str(id) if as_text else id), limit)
            assert fresh == (id not in window)
            window = [*(one for one in window if one != id), id][-limit:]
            assert [await chat.is_duplicate(("tg", one)) for one in range(6)] == [
                one in window for one in range(6)
            ]
        assert (await chat.snapshot()).dedupe_order == [("tg", str(one)) for one in window]

    asyncio.run(run())


# ------------------------------------------------------------------------------------------------ snapshots

IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | IDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(IDS, inner, max_size=3),
    max_leaves=6,
)
MAPS = st.dictionaries(IDS, st.dictionaries(IDS, VALUES, min_size=1, max_size=3), max_size=3)
HELD = st.builds(Held, IDS, VALUES, st.none() | st.floats(1e9, 1e10))
PENDING = st.builds(Pending, IDS, st.sampled_from(["queue", "debounce"]), VALUES)
ORDERS = st.lists(st.tuples(IDS, IDS), max_size=5, unique=True)


@st.composite
def snapshots(draw: Callable[..., Any]) -> Snapshot:
    order = draw(ORDERS)
    return Snapshot(
        subscriptions=draw(st.sets(IDS, max_size=4)),
        dedupe=set(order),
        dedupe_order=order,
        thread_state=draw(MAPS),
        channel_state=draw(MAPS),
        locks=draw(st.dictionaries(IDS, HELD, max_size=3)),
        pending_locks=draw(st.dictionaries(IDS, st.lists(PENDING, min_size=1, max_size=3), max_size=3)),
    )


@given(snapshots())
def test_json_is_exact_and_normalising_changes_nothing(snapshot: Snapshot) -> None:
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert Snapshot.from_json(json.dumps(snapshot.to_dict())) == snapshot
    assert normalize_snapshot(snapshot) == snapshot
    assert Snapshot.from_json(snapshot.to_json()).to_json() == snapshot.to_json()


@given(snapshots(), snapshots())
def test_a_snapshot_restores_over_anything(first: Snapshot, second: Snapshot) -> None:
    async def run() -> None:
        chat = ChatState(MemoryStore(clock=lambda: 1.0), "bot")
        for snapshot in (first, second):
            await chat.restore(snapshot)
            assert await chat.snapshot() == snapshot
        await chat.restore(Snapshot())
        assert chat.store._documents == {}  # type: ignore[attr-defined]

    asyncio.run(run())


async def test_a_snapshot_travels_through_every_store(tmp_path: Any) -> None:
    chat = ChatState(MemoryStore(), "bot")
    await fill_everything(chat)
    await chat.lock("k", "bob", "queue", {"deep": [1, {"x": 1e16}]})
    wanted = await chat.snapshot()
    stores: list[Store] = [ToyStore(), open_store(f"sqlite:///{tmp_path}/a.db"), MemoryStore()]
    for store in stores:
        async with store:
            chat = ChatState(store, "bot")
            await chat.subscribe("not in it")
            await chat.restore(Snapshot.from_json((await last(wanted)).to_json()))
            assert await chat.snapshot() == wanted
            assert await chat.release_lock("k", "ann") == [
                Pending("bob", "queue", {"deep": [1, {"x": 1e16}]})
            ]


async def last(snapshot: Snapshot) -> Snapshot:
    """The snapshot after a stay in a store of its own."""
    chat = ChatState(MemoryStore(), "bot")
    await chat.restore(snapshot)
    return await chat.snapshot()


class Hostile(dict[Any, Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("no")

    def keys(self) -> Any:
        raise RuntimeError("no")


ANYTHING = st.recursive(
    VALUES | st.binary(max_size=3) | st.just(object()) | st.just(float("nan")) | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(IDS | st.integers() | st.none(), inner, max_size=4)
        | st.just(Hostile(a=1))
    ),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries({}, optional=dict.fromkeys(Snapshot.__struct_fields__, ANYTHING))


@given(ANYTHING | PARTS)
def test_normalising_never_fails_and_gives_what_can_be_kept(anything: Any) -> None:
    snapshot = normalize_snapshot(anything)
    assert snapshot.dedupe == set(snapshot.dedupe_order)
    assert len(snapshot.dedupe) == len(snapshot.dedupe_order)
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert normalize_snapshot(snapshot) == snapshot


def test_normalising_sorts_out_each_part() -> None:
    snapshot = normalize_snapshot(
        {
            "subscriptions": [7, "7", "a", None, ["x"]],
            "dedupe": [["tg", 1], ("tg", 2), ["tg"], "tg", ["tg", 1, 2], ["tg", 3], [None, 1]],
            "dedupe_order": [["tg", 3], ["tg", "1"], ["tg", 9]],
            "thread_state": {7: {"a": (1, 2)}, "wrong": [1], "refused": {"when": object()}},
            "channel_state": ["not a map"],
            "locks": {"k": "ann", "l": {"owner": 7, "until": True}, "m": {"metadata": 1}, "n": Held("bob")},
            "pending_locks": {
                "k": [{"owner": 1}, ["cid", "debounce", {"a": 1}], {"strategy": "queue"}],
                "l": [],
            },
            "unknown": 1,
        }
    )
    assert snapshot == Snapshot(
        subscriptions={"7", "a"},
        dedupe={("tg", "1"), ("tg", "2"), ("tg", "3")},
        dedupe_order=[("tg", "2"), ("tg", "3"), ("tg", "1")],
        thread_state={"7": {"a": [1, 2]}, "wrong": {}, "refused": {}},
        channel_state={},
        locks={"k": Held("ann"), "l": Held("7"), "n": Held("bob")},
        pending_locks={"k": [Pending("1"), Pending("cid", "debounce", {"a": 1})]},
    )


def test_a_missing_order_is_that_of_the_list_or_sorted() -> None:
    assert normalize_snapshot({"dedupe": [["b", 1], ["a", 1]]}).dedupe_order == [("b", "1"), ("a", "1")]
    assert normalize_snapshot({"dedupe": {("b", 1), ("a", 1)}}).dedupe_order == [("a", "1"), ("b", "1")]


@pytest.mark.parametrize("text", ["", "[]", "nope", "7", b"\xff", "[" * 5000])
def test_text_that_is_no_snapshot_is_an_error(text: str | bytes) -> None:
    with pytest.raises(DataError):
        Snapshot.from_json(text)


@pytest.mark.parametrize("value", [float("nan"), object(), {1: 2}, "\ud800"])
def test_a_snapshot_that_json_would_change_is_refused(value: Any) -> None:
    for snapshot in (Snapshot(thread_state={"t": {"a": value}}), Snapshot(locks={"k": Held("ann", value)})):
        with pytest.raises(DataError):
            snapshot.to_json()


@pytest.mark.parametrize("wrong", [None, 7, "{}", b"{}", [], EMPTY])
async def test_restoring_something_else_loses_nothing(wrong: Any) -> None:
    """A caller's slip must not wipe the state, as an empty snapshot would."""
    chat = ChatState(MemoryStore(), "bot")
    await fill_everything(chat)
    before = await chat.snapshot()
    with pytest.raises(DataError, match="snapshot"):
        await chat.restore(wrong)
    assert await chat.snapshot() == before


async def test_a_failing_store_is_told_and_restore_can_be_repeated() -> None:
    class Failing(MemoryStore):
        broken = True

        async def transact(self, address: Address, change: Any) -> Any:
            if self.broken and address.key == ("5",):
                raise OSError("away")
            return await super().transact(address, change)

    store = Failing()
    chat = ChatState(store, "bot")
    wanted = Snapshot(subscriptions={str(number) for number in range(200)})
    with pytest.raises(OSError, match="away"):
        await chat.restore(wanted)
    store.broken = False
    await chat.restore(wanted)
    assert await chat.snapshot() == wanted
