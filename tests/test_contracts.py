"""The three contracts, and the small way in: a keeper on a storage that has only the seven methods."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import inspect
import json
import warnings
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hitherto import (
    Chat,
    ChatState,
    ChatTopic,
    ChatTopicUser,
    ChatUser,
    Flow,
    Keeper,
    MemoryStore,
    Record,
    State,
    StoreError,
    User,
)
from hitherto.addresses import Address, encode
from hitherto.contracts import ChatStateAdapter, FSMStorage, Key
from hitherto.errors import DataError, StoreUnavailable, StoreWarning
from hitherto.overlap import Queue, Reject
from hitherto.protocol import Event, Terms
from hitherto.records import Patch
from hitherto.stores import adapted
from hitherto.stores.adapted import AdaptedStore
from hitherto.testing import ChatStateContract, FSMStorageContract, ManualClock, TurnContract
from toy_store import ToyStore

pytestmark = pytest.mark.filterwarnings("ignore::hitherto.errors.StoreWarning")

EXAMPLE = Path(__file__).parents[1] / "examples" / "json_file_storage.py"
HOME = Address("bot", "", (1,))
TERMS = Terms(lease=10)


class Storage:
    """Seven methods over a dict, slow enough for others to come in between; it can be told to fail."""

    def __init__(self, shape: Any = None) -> None:
        self.records: dict[str, Record] = {}
        self.calls: list[str] = []
        self.fail: dict[str, Exception] = {}
        self.shape = shape or (lambda record: record)
        self.entered: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.gates: dict[str, asyncio.Event] = {}

    async def _called(self, name: str, bot: str, key: Any) -> str:
        self.calls.append(name)
        self.entered[name].set()
        await asyncio.sleep(0)
        if name in self.gates:
            await self.gates[name].wait()
        if name in self.fail:
            raise self.fail.pop(name)
        return encode(Address(bot, "", key))

    async def init(self, bot: str, **options: Any) -> None:
        self.calls.append(f"init {bot} {options}")

    async def get_state(self, bot: str, key: Any) -> Any:
        record = self.records.get(await self._called("get_state", bot, key))
        return None if record is None else self.shape(record)

    async def set_state(self, bot: str, key: Any, record: Record) -> None:
        self.records[await self._called("set_state", bot, key)] = record

    async def get_data(self, bot: str, key: Any) -> Any:
        record = self.records.get(await self._called("get_data", bot, key))
        return None if record is None else record.data

    async def set_data(self, bot: str, key: Any, data: dict[str, Any]) -> None:
        text = await self._called("set_data", bot, key)
        kept = self.records.get(text, Record())
        self.records[text] = Record(kept.flow, kept.state, data, kept.version)

    async def update_data(self, bot: str, key: Any, new: dict[str, Any]) -> dict[str, Any]:
        data = {**(await self.get_data(bot, key) or {}), **new}
        await self.set_data(bot, key, data)
        return data

    async def clear(self, bot: str, key: Any) -> None:
        self.records.pop(await self._called("clear", bot, key), None)


async def accept(store: AdaptedStore, id: str, policy: Any = None) -> Any:
    return await store.accept(HOME, Event(id, b"{}"), policy or Queue(), "w", None, TERMS)


def setting(**data: Any) -> Patch:
    return Patch(set={name: json.dumps(value).encode() for name, value in data.items()})


# ------------------------------------------------------------------------------------------ the contracts


def test_what_is_ours_keeps_the_contracts() -> None:
    for storage in (MemoryStore(), ToyStore(), AdaptedStore(Storage()), Storage()):
        assert isinstance(storage, FSMStorage)
    for strategy in (ChatUser(), User(), Chat(), ChatTopic(), ChatTopicUser()):
        assert isinstance(strategy, Key)
    assert isinstance(ChatState(MemoryStore(), "bot"), ChatStateAdapter)
    assert not isinstance(object(), FSMStorage | Key | ChatStateAdapter)


@pytest.mark.parametrize("contract", [FSMStorage, Key, ChatStateAdapter])
def test_every_clause_is_written_down(contract: Any) -> None:
    methods = [
        member for name, member in vars(contract).items() if inspect.isfunction(member) and name[0] != "_"
    ]
    assert len(methods) == {FSMStorage: 7, Key: 1, ChatStateAdapter: 17}[contract]
    assert all(inspect.getdoc(method) for method in methods)


@pytest.mark.parametrize(("contract", "ours"), [(FSMStorage, MemoryStore), (ChatStateAdapter, ChatState)])
def test_our_methods_take_what_the_contract_says(contract: Any, ours: Any) -> None:
    for name, method in vars(contract).items():
        if inspect.isfunction(method) and name[0] != "_":
            asked, given = (inspect.signature(getattr(kind, name)).parameters for kind in (contract, ours))
            assert list(asked) == list(given), name


# ---------------------------------------------------------------------------------- the kit, on a storage


class TestStorageByTheKit(FSMStorageContract, ChatStateContract):
    abilities = frozenset({"reopens"})

    @pytest.fixture
    def store(self, clock: ManualClock) -> AdaptedStore:
        return AdaptedStore(Storage(), clock=clock)


class TestTurnsByTheKit(TurnContract):
    """Every clause of the turn but those of records that expire, which the seven methods cannot do."""

    abilities = frozenset({"reopens"})
    test_records_expire = None
    test_an_expired_record_does_not_come_back = None
    test_a_flow_that_is_over_has_no_policy = None

    @pytest.fixture
    def store(self, clock: ManualClock) -> AdaptedStore:
        return AdaptedStore(Storage(), clock=clock)

    async def test_the_contract_is_whole(self) -> None:
        with pytest.raises(AssertionError) as raised:
            await super().test_the_contract_is_whole()
        off = ["test_a_flow_that_is_over_has_no_policy", "test_an_expired_record_does_not_come_back"]
        assert f"switches off or replaces {', '.join([*off, 'test_records_expire'])}" in str(raised.value)


# ------------------------------------------------------------------------------------------ what it takes


@pytest.mark.parametrize("name", adapted.METHODS)
def test_a_missing_method_is_named(name: str) -> None:
    whole = {method: getattr(Storage, method) for method in adapted.METHODS if method != name}
    with pytest.raises(TypeError, match=f"lacks {name};"):
        AdaptedStore(SimpleNamespace(**whole))


def test_it_warns_that_it_is_for_one_process() -> None:
    with pytest.warns(StoreWarning, match="Storage .* within this process only") as caught:
        AdaptedStore(Storage())
    assert len(caught) == 1
    assert caught[0].filename == __file__


async def test_it_warns_of_records_that_cannot_expire() -> None:
    store = AdaptedStore(Storage())
    with pytest.warns(StoreWarning, match="record_ttl has no effect"):
        await store.init("bot", record_ttl=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await store.init("bot", lease=5)
    assert store.storage.calls == ["init bot {'record_ttl': 5}", "init bot {'lease': 5}"]


SHAPES = {
    "record": lambda record: record,
    "dict": lambda record: {"flow": record.flow, "state": record.state, "data": record.data, "version": 2},
    "object": lambda record: SimpleNamespace(flow=record.flow, state=record.state, data=record.data),
    "state only": lambda record: SimpleNamespace(state=record.state),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_records_come_back_in_any_shape(shape: str) -> None:
    store = AdaptedStore(Storage(SHAPES[shape]))
    await store.set_state("bot", (1,), Record("signup", "name", {"a": [1]}, 2))
    found = await store.get_state("bot", (1,))
    whole = Record("signup", "name", {"a": [1]}, 1 if shape == "object" else 2)
    assert found == (Record(None, "name") if shape == "state only" else whole)
    assert (await accept(store, "a")).grant.record.to_record() == found


@pytest.mark.parametrize(
    "wrong", [7, "text", object(), {"flow": 7}, {"data": {"a": object()}}, {"data": [1]}]
)
async def test_what_is_no_record_is_an_error(wrong: Any) -> None:
    store = AdaptedStore(Storage(lambda _: wrong))
    store.storage.records[encode(HOME)] = Record()
    with pytest.raises(DataError):
        await store.get_state("bot", (1,))
    with pytest.raises(DataError):
        await accept(store, "a")
    assert store._documents == {}


async def test_data_is_checked_before_the_storage_sees_it() -> None:
    store = AdaptedStore(Storage())
    for ask in (
        store.set_data("bot", (1,), {"a": object()}),
        store.update_data("bot", (1,), {"a": float("nan")}),
        store.set_state("bot", (1,), Record(data={"a": {1: 2}})),
    ):
        with pytest.raises(DataError):
            await ask
    assert store.storage.calls == []


# ------------------------------------------------------------------------------- the storage comes first


async def test_the_storage_is_written_before_the_event_is_done() -> None:
    store = AdaptedStore(Storage())
    grant = (await accept(store, "a")).grant
    seen: list[bool] = []
    original = store.storage.set_state

    async def watched(*arguments: Any) -> None:
        await original(*arguments)
        seen.append("a" in (await store.load(HOME)).seen)

    store.storage.set_state = watched
    assert (await store.settle(HOME, grant.claim, None, TERMS, patch=setting(n=1))).status == "committed"
    assert seen == [False]
    assert "a" in (await store.load(HOME)).seen
    assert (await store.get_state("bot", (1,))) == Record(data={"n": 1})


async def test_an_unchanged_turn_and_a_waiting_event_cost_the_storage_nothing() -> None:
    store = AdaptedStore(Storage())
    grant = (await accept(store, "a")).grant
    assert (await accept(store, "b")).status == "queued"
    assert (await accept(store, "a")).status == "duplicate"
    assert (await accept(store, "c", Reject())).status == "busy"
    assert store.storage.calls == ["get_state"]
    answer = await store.settle(HOME, grant.claim, None, TERMS)
    assert store.storage.calls == ["get_state"] * 2
    await store.settle(HOME, answer.grant.claim, None, TERMS)
    assert store.storage.calls == ["get_state"] * 2


async def test_a_commit_is_a_patch_of_what_the_storage_has_now() -> None:
    store = AdaptedStore(Storage())
    grant = (await accept(store, "a")).grant
    await store.update_data("bot", (1,), {"elsewhere": 1})
    await store.settle(HOME, grant.claim, None, TERMS, patch=setting(here=2))
    assert await store.get_data("bot", (1,)) == {"elsewhere": 1, "here": 2}


async def test_a_turn_that_clears_clears_the_storage() -> None:
    store = AdaptedStore(Storage())
    await store.set_state("bot", (1,), Record("signup", "name"))
    grant = (await accept(store, "a")).grant
    await store.settle(HOME, grant.claim, None, TERMS, patch=Patch(cleared=True))
    assert store.storage.records == {}
    assert store.storage.calls[-1] == "clear"


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [(RuntimeError("secret"), StoreError, False), (ConnectionError("secret"), StoreUnavailable, True)],
)
async def test_a_failing_storage_marks_nothing_as_done(error: Exception, kind: Any, retryable: bool) -> None:
    store = AdaptedStore(Storage())
    store.storage.fail["get_state"] = error
    with pytest.raises(kind) as raised:
        await accept(store, "a")
    assert raised.value.__cause__ is error
    assert raised.value.retryable is retryable
    assert "secret" not in str(raised.value)
    assert store._documents == {}
    grant = (await accept(store, "a")).grant
    store.storage.fail["set_state"] = error
    with pytest.raises(kind):
        await store.settle(HOME, grant.claim, None, TERMS, patch=setting(n=1))
    assert [entry.claimed for entry in (await store.load(HOME)).inbox] == [True]
    assert (await store.settle(HOME, grant.claim, None, TERMS, patch=setting(n=1))).status == "committed"
    assert await store.get_data("bot", (1,)) == {"n": 1}


async def test_a_commit_that_was_begun_is_finished_when_its_caller_is_cancelled() -> None:
    store = AdaptedStore(Storage())
    grant = (await accept(store, "a")).grant
    task = asyncio.create_task(store.settle(HOME, grant.claim, None, TERMS, patch=setting(n=1)))
    await store.storage.entered["set_state"].wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await accept(store, "a")).status == "duplicate"
    assert (await store.load(HOME)).lease is None
    assert await store.get_data("bot", (1,)) == {"n": 1}


@pytest.mark.parametrize("rival", ["accept", "take over", "force release", "expire"])
@pytest.mark.parametrize("with_event", [True, False])
async def test_nobody_comes_between_the_storage_and_the_mark(rival: str, with_event: bool) -> None:
    """A lease that ends while the storage is being written does not make the written turn a lost one."""
    clock, storage = ManualClock(), Storage()
    store = AdaptedStore(storage, clock=clock)
    granted = await (accept(store, "a") if with_event else store.acquire(HOME, "w", None, TERMS))
    storage.gates["set_state"] = asyncio.Event()
    clock.advance(9)
    task = asyncio.create_task(store.settle(HOME, granted.grant.claim, None, TERMS, patch=setting(n=1)))
    await storage.entered["set_state"].wait()
    clock.advance(5)
    rivals = {
        "accept": lambda: accept(store, "b"),
        "take over": lambda: store.take_over(HOME, "x", None, TERMS),
        "force release": lambda: store.force_release(HOME, None, TERMS),
        "expire": lambda: store.expire("bot", 10, TERMS),
    }
    other = asyncio.create_task(rivals[rival]())
    for _ in range(9):
        await asyncio.sleep(0)
    storage.gates["set_state"].set()
    assert (await task).status == "committed"
    answer = await other
    if rival == "accept":
        assert answer.grant.record.to_record() == Record(data={"n": 1})
    else:
        assert answer == 0 if rival == "expire" else answer.status == "nothing"


async def test_what_is_forgotten_is_gone_from_the_storage() -> None:
    store = AdaptedStore(Storage())
    await store.set_state("bot", (1,), Record("signup", "name"))
    await store.forget(HOME)
    assert store.storage.records == {}


async def test_a_patch_that_changes_nothing_is_not_written() -> None:
    store = AdaptedStore(Storage())
    await store.set_data("bot", (1,), {"n": 1})
    grant = (await accept(store, "a")).grant
    await store.settle(HOME, grant.claim, None, TERMS, patch=setting(n=1))
    assert "set_state" not in store.storage.calls
    assert (await accept(store, "a")).status == "duplicate"


async def test_a_stale_turn_writes_nothing_into_the_storage() -> None:
    clock = ManualClock()
    store = AdaptedStore(Storage(), clock=clock)
    stale = (await accept(store, "a")).grant
    clock.advance(11)
    newer = (await store.take_over(HOME, "x", None, TERMS)).grant
    assert (await store.settle(HOME, stale.claim, None, TERMS, patch=setting(n=1))).status == "fenced"
    assert "set_state" not in store.storage.calls
    await store.settle(HOME, newer.claim, None, TERMS, patch=setting(n=2))
    assert await store.get_data("bot", (1,)) == {"n": 2}


# ------------------------------------------------------------------------------------------ one process


async def test_stores_around_one_storage_are_one() -> None:
    storage = Storage()
    first, second = AdaptedStore(storage), AdaptedStore(storage)
    assert (await accept(first, "a")).status == "granted"
    assert (await accept(second, "b")).status == "queued"
    assert (await accept(AdaptedStore(Storage()), "b")).status == "granted"
    await asyncio.gather(
        *[
            (first, second)[number % 2].write(HOME, lambda stored, n=number: _with_key(stored, n))
            for number in range(50)
        ]
    )
    assert len(await first.get_data("bot", (1,)) or {}) == 50


def _with_key(stored: Any, number: int) -> Any:
    return adapted.from_record(Record(data={**(stored.to_record().data if stored else {}), str(number): 1}))


async def test_nothing_is_left_of_what_is_idle() -> None:
    store = AdaptedStore(Storage())
    await asyncio.gather(*[store.update_data("bot", (number,), {"a": 1}) for number in range(50)])
    gc.collect()
    assert len(store._alone) == 0
    assert store._documents == {}
    before = len(adapted._SHARED)
    del store
    gc.collect()
    assert len(adapted._SHARED) == before - 1


class Slotted:
    """A storage that cannot be referred to weakly."""

    __slots__ = ()
    init = get_state = set_state = get_data = set_data = update_data = clear = staticmethod(print)


def test_a_storage_without_weak_references_keeps_to_itself() -> None:
    before = len(adapted._SHARED)
    AdaptedStore(Slotted())
    assert len(adapted._SHARED) == before


# ------------------------------------------------------------------------------------------- the keeper


class Counting(Flow):
    counting = State(initial=True)


async def count(turn: Any) -> None:
    if turn.flow is None:
        turn.start(Counting)
    seen = turn.data.get("n", 0)
    await asyncio.sleep(0)
    turn.data["n"] = seen + 1
    turn.data.setdefault("order", []).append(turn.event["id"])


def keeper_of(storage: Any, **options: Any) -> Keeper:
    options = {"handler": count, **options}
    return Keeper("bot", storage, [Counting], key=lambda event: (event["from"],), **options)


async def test_a_keeper_keeps_its_promise_on_a_storage() -> None:
    storage, all_counted = Storage(), asyncio.Event()

    async def counted(turn: Any) -> None:
        await count(turn)
        if turn.event["id"] >= 38:
            done.add(turn.event["id"])
            if done == {38, 39}:
                all_counted.set()

    done: set[int] = set()
    options = {"lease": 7, "handler": counted}
    async with keeper_of(storage, **options) as one, keeper_of(storage, **options) as two:
        assert storage.calls[0].startswith("init bot {")
        assert "'lease': 7" in storage.calls[0]
        for number in range(40):
            event = {"from": number % 2, "id": number}
            await (one, two)[number % 3 == 0].accept(event, id=number)
            await two.accept(event, id=number)
        await all_counted.wait()
    for key in (0, 1):
        record = storage.records[encode(Address("bot", "", (key,)))]
        assert (record.flow, record.state, record.data["n"]) == ("counting", "counting", 20)
        assert record.data["order"] == list(range(key, 40, 2))


async def test_a_keeper_tells_of_a_failing_storage_and_loses_no_event() -> None:
    storage = Storage()
    event = {"from": 1, "id": 1}
    async with keeper_of(storage) as keeper:
        storage.fail["get_state"] = RuntimeError("broken")
        with pytest.raises(StoreError, match="get_state failed with RuntimeError"):
            await keeper.handle(event, id=1)
        assert (await keeper.handle(event, id=1)).status == "committed"
        storage.fail["set_state"] = ConnectionError("away for a moment")
        assert (await keeper.handle({"from": 1, "id": 2}, id=2)).status == "committed"
        assert (await keeper.handle(event, id=1)).status == "duplicate"
    assert storage.records[encode(HOME)].data == {"n": 2, "order": [1, 2]}


# ------------------------------------------------------------------------------------------ the example


def example() -> Any:
    spec = importlib.util.spec_from_file_location("json_file_storage", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_example_counts_on_after_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "counter.json"
    for _ in range(2):
        await example().main(path)
    assert capsys.readouterr().out.split() == [
        "one",
        "1",
        "two",
        "2",
        "three",
        "3",
        "one",
        "4",
        "two",
        "5",
        "three",
        "6",
    ]
    (record,) = json.loads(path.read_text()).values()
    assert record == {"flow": "counting", "state": "counting", "data": {"n": 6}, "version": 1}


def test_the_example_is_a_storage_of_thirty_lines() -> None:
    source = EXAMPLE.read_text().partition("class JSONFileStorage")[2].partition("class Counting")[0]
    assert len([line for line in source.splitlines() if line.strip()]) <= 30
    assert isinstance(example().JSONFileStorage("somewhere"), FSMStorage)


class TestExampleByTheKit(FSMStorageContract):
    abilities = frozenset({"reopens"})

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AdaptedStore:
        store = AdaptedStore(example().JSONFileStorage(tmp_path / "kit.json"), clock=clock)
        await store.init("bot")
        return store
