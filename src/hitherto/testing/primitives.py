"""The clauses of the five primitives that a store author writes: open, close, load, swap, scan."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from msgspec.structs import replace

from hitherto import codec
from hitherto.addresses import Address, encode
from hitherto.errors import DataError
from hitherto.overlap import Concurrent
from hitherto.protocol import EMPTY, Dead, Document, Entry, Lease
from hitherto.records import Record, Stored
from hitherto.stores.base import Store
from hitherto.testing.clock import ManualClock
from hitherto.testing.fsm import HOSTILE, TWINS
from hitherto.testing.kit import BOT, KEY, TERMS, Contract, Talk, gathered, needs, refuses, setting, view

HOME = Address(BOT, "", KEY)
RECORD = Stored("signup", "ask_name", 3, {"a": b"1", "text": b'"\\u0000"'}, 1_800_000_900.5)
FULL = Document(
    version=1,
    epoch=4,
    lease=Lease("ann", 1_800_000_030.25),
    record=RECORD,
    inbox=(
        Entry(3, "e3", b'{"n":3}', 1_800_000_000.0, 2, True, 0.0, None, None, "burst"),
        Entry(4, None, b"[]", 1_800_000_001.0, 1, False, 1_800_000_005.0, None, None, "", True),
        Entry(
            5, "e5", b'"\xf0\x9f\x98\x80"', 1_800_000_002.0, 0, False, 0.0, 1_800_000_060.0, None, "debounce"
        ),
        Entry(6, "e6", b"{}", 1_800_000_003.0, 1, False, 0.0, None, 1_800_000_033.0),
    ),
    next_seq=7,
    seen={"z": 1_799_999_990.0, "b": 1_799_999_991.0, "y": 1_799_999_991.0, "a:{}": 1_799_999_992.5},
    dead=(Dead(1, "e1", b'{"n":1}', 1_799_999_000.0, 5, "ValueError", 1_799_999_900.0),),
    touched=1_800_000_003.0,
)
"""A document with something in every place."""


class PrimitivesContract(Contract):
    """What is promised of ``open``, ``close``, ``load``, ``swap`` and ``scan``, and of the store's time."""

    mixin: ClassVar[bool] = True

    @pytest.fixture
    def store(self) -> Store:
        """An opened, empty store that goes by the fixture ``clock``."""
        raise NotImplementedError(
            "give the class a fixture `store`: an opened, empty store, with clock=clock"
        )

    # ------------------------------------------------------------------------------------- open and close

    async def test_opening_twice_does_nothing(self, store: Store) -> None:
        """``open`` of an open store does nothing."""
        await store.set_data(BOT, KEY, {"a": 1})
        await store.open()
        assert await store.get_data(BOT, KEY) == {"a": 1}

    async def test_closing_twice_does_nothing(self, store: Store) -> None:
        """``close`` of a closed store does nothing."""
        await store.close()
        await store.close()
        await store.open()
        await store.set_data(BOT, KEY, {"a": 1})
        assert await store.get_data(BOT, KEY) == {"a": 1}

    async def test_a_store_is_a_context(self, store: Store) -> None:
        """``async with store`` gives the store itself, open."""
        async with store as same:
            assert same is store
            await same.set_data(BOT, KEY, {"a": 1})
            assert await same.get_data(BOT, KEY) == {"a": 1}

    async def test_the_time_is_the_injected_one(self, store: Store, clock: ManualClock) -> None:
        """The store goes by the clock that it was given."""
        assert await store.now() == clock()
        clock.advance(1234.5)
        assert await store.now() == clock()

    async def test_operation_ids_differ(self, store: Store) -> None:
        """``op`` gives a text that no other call gave, or always ``None`` when no reply can be lost."""
        made = [store.op() for _ in range(100)]
        assert set(made) == {None} or len({op for op in made if isinstance(op, str) and op}) == 100

    @needs("reopens")
    async def test_what_was_written_outlives_the_store(self, store: Store, clock: ManualClock) -> None:
        """What was written is there after the store was closed and opened again: record, inbox, all."""
        talk = Talk(store, clock)
        await talk.busy("waits")
        await store.update_data(BOT, KEY, {"a": 1})
        before = await talk.document()
        await store.close()
        await store.open()
        assert view(await talk.document()) == view(before)
        assert await talk.waiting() == ["waits"]
        assert await talk.data() == {"a": 1}

    @needs("reopens")
    async def test_a_turn_goes_on_after_reopening(self, store: Store, clock: ManualClock) -> None:
        """A turn that was begun before the store was closed and opened again can still be committed."""
        talk = Talk(store, clock)
        grant = await talk.begin("a")
        await store.close()
        await store.open()
        await talk.commit(grant, setting(a=1))
        assert await talk.data() == {"a": 1}
        assert await talk.seen() == ["a"]

    @needs("shared")
    async def test_another_sees_what_one_wrote(self, store: Store, another: Store) -> None:
        """What one store object wrote is there for another at once."""
        await store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        assert await another.get_state(BOT, KEY) == Record("signup", "name", {"a": 1})
        await another.update_data(BOT, KEY, {"b": 2})
        assert await store.get_data(BOT, KEY) == {"a": 1, "b": 2}

    @needs("shared")
    async def test_another_respects_the_lease(self, store: Store, another: Store, clock: ManualClock) -> None:
        """A conversation that is busy for one store object is busy for another."""
        ours, theirs = Talk(store, clock), Talk(another, clock)
        grant = await ours.begin("a")
        assert (await theirs.accept("b")).status == "queued"
        assert (await theirs.accept("a")).status == "duplicate"
        handed = await ours.commit(grant)
        assert handed is not None
        assert (await theirs.accept("a")).status == "duplicate"

    @needs("shared")
    async def test_another_fences(self, store: Store, another: Store, clock: ManualClock) -> None:
        """What one store object took over, another cannot commit any more."""
        ours, theirs = Talk(store, clock), Talk(another, clock)
        grant = await ours.begin("a")
        clock.advance(31)
        taken = await theirs.taken()
        await ours.fenced(grant)
        await theirs.commit(taken, setting(a=1))
        assert await ours.data() == {"a": 1}

    @needs("shared")
    async def test_two_stores_lose_no_update(self, store: Store, another: Store) -> None:
        """Fifty concurrent ``update_data`` over two store objects leave fifty keys."""
        both = (store, another)
        await asyncio.gather(*[both[n % 2].update_data(BOT, KEY, {f"k{n}": n}) for n in range(50)])
        assert await store.get_data(BOT, KEY) == {f"k{n}": n for n in range(50)}

    # ------------------------------------------------------------------------------------- load and swap

    async def test_load_of_nothing_is_empty(self, store: Store) -> None:
        """``load`` of an address where nothing is kept gives the empty document."""
        assert await store.load(HOME) == EMPTY

    async def test_swap_creates(self, store: Store) -> None:
        """``swap`` that expects version 0 creates a document; ``load`` gives it back, every part of it."""
        assert await store.swap(HOME, 0, FULL) is True
        assert view(await store.load(HOME)) == view(FULL)

    async def test_swap_replaces(self, store: Store) -> None:
        """``swap`` that expects the version that is there replaces the document as a whole."""
        await store.swap(HOME, 0, FULL)
        before = await store.load(HOME)
        after = Document(version=before.version + 1, epoch=5, next_seq=9, touched=1.0)
        assert await store.swap(HOME, before.version, after) is True
        assert view(await store.load(HOME)) == view(after)

    async def test_versions_move_on(self, store: Store) -> None:
        """The version that ``load`` gives differs after every change."""
        versions = {(await store.load(HOME)).version}
        for number in range(5):
            await store.update_data(BOT, KEY, {"n": number})
            versions.add((await store.load(HOME)).version)
        assert len(versions) == 6

    async def test_swap_of_an_old_version_is_refused(self, store: Store) -> None:
        """``swap`` that expects a version from before is ``False`` and changes nothing."""
        await store.update_data(BOT, KEY, {"a": 1})
        old = await store.load(HOME)
        await store.update_data(BOT, KEY, {"b": 2})
        assert await store.swap(HOME, old.version, replace(old, version=old.version + 1)) is False
        assert await store.get_data(BOT, KEY) == {"a": 1, "b": 2}

    async def test_swap_does_not_create_twice(self, store: Store) -> None:
        """``swap`` that expects nothing is ``False`` where something is, and changes nothing."""
        await store.swap(HOME, 0, FULL)
        assert await store.swap(HOME, 0, Document(version=1, epoch=9)) is False
        assert view(await store.load(HOME)) == view(FULL)

    async def test_swap_of_what_is_not_there_is_refused(self, store: Store) -> None:
        """``swap`` that expects something is ``False`` where nothing is, and creates nothing."""
        assert await store.swap(HOME, 3, replace(FULL, version=4)) is False
        assert await store.load(HOME) == EMPTY

    async def test_one_of_many_swaps_wins(self, store: Store) -> None:
        """Of many concurrent ``swap`` with the same expectation exactly one succeeds, and is kept."""
        documents = [replace(FULL, epoch=number) for number in range(1, 21)]
        won = await asyncio.gather(*[store.swap(HOME, 0, document) for document in documents])
        assert won.count(True) == 1
        assert (await store.load(HOME)).epoch == won.index(True) + 1

    async def test_swap_touches_one_address(self, store: Store) -> None:
        """``swap`` changes the document at its address and no other: not another bot's, realm's or key's."""
        others = [Address(BOT, "", (7, 8)), Address(BOT, "thread", KEY), Address("another", "", KEY)]
        for number, address in enumerate((HOME, *others)):
            assert await store.swap(address, 0, replace(FULL, epoch=number + 1)) is True
        assert await store.swap(HOME, (await store.load(HOME)).version, Document(version=2, epoch=50))
        assert [(await store.load(address)).epoch for address in (HOME, *others)] == [50, 2, 3, 4]

    async def test_addresses_that_look_alike_differ(self, store: Store) -> None:
        """Addresses whose encoded texts differ are different places, also those that are equal to Python."""
        for number, key in enumerate(TWINS):
            assert await store.swap(Address(BOT, "", key), 0, Document(version=1, epoch=number + 1)), key
        for number, key in enumerate(TWINS):
            assert (await store.load(Address(BOT, "", key))).epoch == number + 1, key

    async def test_a_loaded_document_stands_still(self, store: Store) -> None:
        """A document that was loaded does not change when the store does."""
        await store.swap(HOME, 0, FULL)
        before = await store.load(HOME)
        await store.update_data(BOT, KEY, {"new": 1})
        await store.forget(HOME)
        assert view(before) == view(FULL)

    async def test_large_documents(self, store: Store) -> None:
        """A document may hold twenty events of 100 kB and a record of nearly a megabyte."""
        payload = b'"' + b"x" * 100_000 + b'"'
        inbox = tuple(Entry(n, f"e{n}", payload, 1.0) for n in range(1, 21))
        record = Stored(fields={"blob": b'"' + b"y" * 1_000_000 + b'"'})
        large = Document(version=1, inbox=inbox, next_seq=21, record=record)
        assert await store.swap(HOME, 0, large) is True
        assert view(await store.load(HOME)) == view(large)

    async def test_a_record_has_a_limit(self, store: Store) -> None:
        """More data than a record may hold is refused with a ``DataError``, and nothing changes."""
        await store.set_data(BOT, KEY, {"a": "x" * 600_000})
        with refuses(DataError):
            await store.set_data(BOT, KEY, {"b": "y" * codec.MAX_BYTES})
        with refuses(DataError):
            await store.update_data(BOT, KEY, {"b": "y" * 600_000})
        assert await store.get_data(BOT, KEY) == {"a": "x" * 600_000}

    async def test_refusals_name_the_place(self, store: Store) -> None:
        """What cannot be stored is refused with a ``DataError`` whose ``path`` says where it is."""
        with refuses(DataError) as raised:
            await store.set_data(BOT, KEY, {"cart": [0, {"when": b"now"}]})
        assert [getattr(error, "path", None) for error in raised] == ['data["cart"][1]["when"]']

    async def test_a_bot_has_a_name(self, store: Store) -> None:
        """A bot without a name is refused by ``init``."""
        for bot in ("", None, 7):
            with refuses(ValueError, TypeError):
                await store.init(bot)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------ scan

    async def test_scan_of_nothing(self, store: Store) -> None:
        """``scan`` of a bot that has nothing gives nothing, whatever the kind."""
        await store.set_data("another", KEY, {"a": 1})
        for kind in ("all", "record", "due", "pending", "lease", "dead", "everything", "thread"):
            assert await gathered(store.scan(BOT, kind)) == []

    async def test_scan_all(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "all")`` lists every conversation of which anything is kept, each once."""
        for number in range(30):
            await store.set_data(BOT, (number,), {"n": number})
        await Talk(store, clock, ("busy",)).begin("a")
        await Talk(store, clock, ("dead",)).bury("a")
        expected = [Address(BOT, "", (name,)) for name in (*range(30), "busy", "dead")]
        assert await gathered(store.scan(BOT, "all")) == sorted(expected, key=repr)

    async def test_scan_everything(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "everything")`` lists what is kept in every realm, for exports."""
        await store.set_data(BOT, (1,), {"n": 1})
        await Talk(store, clock, ("busy",)).begin("a")
        for realm in ("thread", "one that nobody: foresaw"):
            await store.write(Address(BOT, realm, (1,)), lambda _: Stored(fields={"a": b"1"}))
        await store.write(Address("another", "thread", (1,)), lambda _: Stored(fields={"a": b"1"}))
        expected = [(address.realm, address.key) for address in await gathered(store.scan(BOT, "everything"))]
        assert sorted(expected, key=repr) == [
            ("", ("busy",)), ("", (1,)), ("one that nobody: foresaw", (1,)), ("thread", (1,)),
        ]  # fmt: skip

    async def test_scan_record(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "record")`` lists the conversations that have a record, an empty one too."""
        await store.set_state(BOT, (1,), Record())
        await store.set_data(BOT, (2,), {"a": 1})
        await store.set_data(BOT, (3,), {"a": 1})
        await store.clear(BOT, (3,))
        await Talk(store, clock, (4,)).begin("a")
        assert [address.key for address in await gathered(store.scan(BOT, "record"))] == [(1,), (2,)]

    async def test_scan_pending(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "pending")`` lists the conversations with events that are not committed yet."""
        talk = Talk(store, clock)
        await store.set_data(BOT, (8,), {"a": 1})
        assert not await talk.is_filed("pending")
        grant = await talk.begin("a")
        assert await talk.is_filed("pending")
        await talk.commit(grant)
        assert not await talk.is_filed("pending")

    async def test_scan_lease(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "lease")`` lists the conversations that somebody holds, those with a dead lease too."""
        talk = Talk(store, clock)
        grant = await talk.acquired()
        assert await talk.is_filed("lease")
        assert not await talk.is_filed("pending")
        clock.advance(31)
        assert await talk.is_filed("lease")
        await talk.commit(grant)
        assert not await talk.is_filed("lease")

    async def test_scan_dead(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "dead")`` lists the conversations with dead letters, until the last one is gone."""
        talk = Talk(store, clock)
        seq = await talk.bury("a")
        assert await talk.is_filed("dead")
        await talk.drop_dead(seq)
        assert not await talk.is_filed("dead")

    async def test_scan_due_follows_the_lease(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "due")`` lists a busy conversation from its deadline on, and no earlier."""
        talk = Talk(store, clock)
        grant = await talk.begin("a")
        assert not await talk.is_filed("due")
        clock.advance(29.75)
        assert not await talk.is_filed("due")
        await talk.renew(grant)
        clock.advance(0.25)
        assert not await talk.is_filed("due")
        clock.advance(29.75)
        assert await talk.is_filed("due")
        await talk.taken()
        assert not await talk.is_filed("due")

    async def test_scan_due_follows_what_waits(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "due")`` lists a free conversation as soon as something in its inbox may run."""
        talk = Talk(store, clock)
        grant = await talk.begin("a")
        await talk.settle(grant, verdict="retry", delay=10.0)
        assert not await talk.is_filed("due")
        clock.advance(9.75)
        assert not await talk.is_filed("due")
        clock.advance(0.25)
        assert await talk.is_filed("due")

    async def test_scan_due_follows_lone_turns(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "due")`` lists a conversation whose lone turn is past its deadline."""
        talk = Talk(store, clock)
        await talk.begin("a", Concurrent())
        assert not await talk.is_filed("due")
        clock.advance(30)
        assert await talk.is_filed("due")

    async def test_scan_due_leaves_out_what_is_at_rest(self, store: Store, clock: ManualClock) -> None:
        """``scan(bot, "due")`` never lists a conversation without a lease and with an empty inbox."""
        talk = Talk(store, clock)
        await talk.commit(await talk.begin("a"), setting(a=1))
        await talk.bury("b")
        clock.advance(10_000_000)
        assert not await talk.is_filed("due")

    async def test_scan_keeps_bots_apart(self, store: Store) -> None:
        """``scan`` lists conversations of its bot only, also when another's name begins alike."""
        bots = ["bot", "bot2", "bo", "bot/", "b%t", "b_t", "BOT", "*"]
        for bot in bots:
            await store.set_data(bot, (bot,), {"a": 1})
        for bot in bots:
            assert await gathered(store.scan(bot, "all")) == [Address(bot, "", (bot,))]

    async def test_scan_gives_the_keys_back(self, store: Store) -> None:
        """``scan`` gives every key back as it was, hostile ones and their types too."""
        keys = [*TWINS, *[(text, 7) for text in HOSTILE], (2**64,), (10**40, -5)]
        for key in keys:
            await store.set_data(BOT, key, {"a": 1})
        found = {encode(address) async for address in store.scan(BOT, "all")}
        assert found == {encode(Address(BOT, "", key)) for key in keys}

    async def test_scan_lists_each_once(self, store: Store) -> None:
        """``scan`` lists each conversation once, also a thousand of them."""
        for number in range(1000):
            await store.swap(Address(BOT, "", (number,)), 0, Document(version=1, epoch=1, touched=1.0))
        found = [address.key async for address in store.scan(BOT, "all")]
        assert len(found) == len(set(found)) == 1000

    async def test_scan_of_a_realm(self, store: Store) -> None:
        """``scan`` of another word lists that realm of the library's own, and no conversations."""
        fields = Stored(fields={"a": b"1"})
        for realm, key in (("", (1,)), ("thread", "x"), ("thread", "y"), ("channel", "x")):
            await store.swap(Address(BOT, realm, key), 0, Document(version=1, record=fields))
        assert await gathered(store.scan(BOT, "thread")) == [Address(BOT, "thread", key) for key in "xy"]
        assert await gathered(store.scan(BOT, "channel")) == [Address(BOT, "channel", "x")]
        assert await gathered(store.scan(BOT, "all")) == [Address(BOT, "", (1,))]

    async def test_scan_stands_changes_meanwhile(self, store: Store) -> None:
        """Writing while a ``scan`` goes on does it no harm: what was there all the time is listed once."""
        for number in range(40):
            await store.set_data(BOT, (number,), {"n": number})
        found = []
        async for address in store.scan(BOT, "all"):
            found.append(address.key)
            if len(found) <= 20:
                for number in (1000 + len(found), -len(found)):
                    await store.set_data(BOT, (number,), {"a": 1})
                await store.update_data(BOT, (39,), {"b": len(found)})
        assert [found.count((number,)) for number in range(40)] == [1] * 40

    async def test_a_scan_may_be_left(self, store: Store) -> None:
        """A ``scan`` may be left in the middle, and the store goes on working."""
        for number in range(20):
            await store.set_data(BOT, (number,), {"n": number})
        for _ in range(20):
            scan = store.scan(BOT, "all")
            async for _address in scan:
                break
        await store.set_data(BOT, KEY, {"a": 1})
        assert len(await gathered(store.scan(BOT, "all"))) == 21

    # ------------------------------------------------------------------------------- what is derived

    async def test_due_has_a_limit(self, store: Store, clock: ManualClock) -> None:
        """``due`` gives at most as many conversations as asked for, and only due ones."""
        for number in range(5):
            await Talk(store, clock, (number,)).begin("a")
        assert await store.due(BOT, 10) == []
        clock.advance(30)
        await Talk(store, clock, ("fresh",)).begin("a")
        assert len(await store.due(BOT, 3)) == 3
        assert {address.key for address in await store.due(BOT, 10)} == {(n,) for n in range(5)}

    async def test_a_transaction_sees_the_newest(self, store: Store) -> None:
        """Fifty concurrent ``transact`` of one conversation are as if one came after the other."""

        def counted(document: Document, now: float) -> tuple[Document, int]:
            after = replace(document, version=document.version + 1, epoch=document.epoch + 1, touched=now)
            return after, after.epoch

        answers = await asyncio.gather(*[store.transact(HOME, counted) for _ in range(50)])
        assert sorted(answers) == list(range(1, 51))
        assert (await store.load(HOME)).epoch == 50

    async def test_a_transaction_that_fails_changes_nothing(self, store: Store) -> None:
        """An error in a change is raised as it is, nothing is changed and nobody else is disturbed."""

        def failing(document: Document, now: float) -> tuple[Document, None]:
            raise LookupError("no")

        await store.set_data(BOT, KEY, {"a": 1})
        answers = await asyncio.gather(
            store.update_data(BOT, KEY, {"b": 2}),
            store.transact(HOME, failing),
            store.update_data(BOT, KEY, {"c": 3}),
            return_exceptions=True,
        )
        assert isinstance(answers[1], LookupError)
        assert await store.get_data(BOT, KEY) == {"a": 1, "b": 2, "c": 3}

    async def test_expire_goes_round(self, store: Store, clock: ManualClock) -> None:
        """``expire`` called again and again reaches every conversation, however small its steps."""
        for number in range(7):
            await Talk(store, clock, (number,)).acquired()
        clock.advance(31)
        for _ in range(20):
            await store.expire(BOT, 2, TERMS)
        assert await gathered(store.scan(BOT, "lease")) == []

    async def test_expire_is_of_one_bot(self, store: Store, clock: ManualClock) -> None:
        """``expire`` of one bot leaves the conversations of others alone."""
        theirs = Talk(store, clock, bot="another")
        await theirs.acquired()
        clock.advance(31)
        for _ in range(5):
            await store.expire(BOT, 10, TERMS)
        assert await theirs.is_filed("lease")
