"""The clauses of accepting an event: what is granted, what is a duplicate, and every overlap policy."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Queue, Reject
from hitherto.protocol import Dropped
from hitherto.records import Record
from hitherto.stores.base import Store
from hitherto.testing.clock import ManualClock
from hitherto.testing.kit import BOT, KEY, Contract, Talk, ids, setting, to_state


class AcceptContract(Contract):
    """What is promised of ``accept``."""

    mixin: ClassVar[bool] = True

    @pytest.fixture
    def store(self) -> Store:
        """An opened, empty store that goes by the fixture ``clock``."""
        raise NotImplementedError(
            "give the class a fixture `store`: an opened, empty store, with clock=clock"
        )

    @pytest.fixture
    def talk(self, store: Store, clock: ManualClock) -> Talk:
        """One conversation of the store."""
        return Talk(store, clock)

    # ---------------------------------------------------------------------------------- a free conversation

    async def test_a_free_conversation_is_granted(self, talk: Talk) -> None:
        """An event of a free conversation is granted at once, with itself as the only entry."""
        answer = await talk.accept("a", payload=b'{"n":1}')
        assert answer.status == "granted"
        assert answer.grant is not None
        assert [(entry.event_id, entry.payload) for entry in answer.grant.entries] == [("a", b'{"n":1}')]
        assert answer.seq == answer.grant.entries[0].seq
        assert not answer.grant.lone

    async def test_a_grant_begins_without_a_record(self, talk: Talk) -> None:
        """The grant of a conversation that has no record says so."""
        assert (await talk.begin("a")).record is None

    async def test_a_grant_carries_the_record(self, talk: Talk) -> None:
        """The grant carries the record as it is at that moment, so that nothing has to be loaded."""
        await talk.store.set_state(BOT, KEY, Record("signup", "name", {"a": [1]}, 3))
        grant = await talk.begin("a")
        assert grant.record is not None
        assert grant.record.to_record() == Record("signup", "name", {"a": [1]}, 3)

    async def test_a_grant_lasts_for_the_lease(self, talk: Talk) -> None:
        """A grant's deadline is the store's time plus the length of the lease."""
        talk.under(lease=45.0)
        assert (await talk.begin("a")).deadline == talk.clock() + 45

    async def test_answers_carry_the_time(self, talk: Talk) -> None:
        """Every answer carries the store's time, whether it changed anything or not."""
        talk.clock.advance(10)
        for name in ("a", "b", "a"):
            assert (await talk.accept(name)).at == talk.clock()

    async def test_entries_carry_the_time_of_acceptance(self, talk: Talk) -> None:
        """An entry says when it was accepted, also when it had to wait."""
        moment = talk.clock()
        first = await talk.busy("a")
        talk.clock.advance(5)
        handed = await talk.commit(first)
        assert first.entries[0].accepted_at == moment
        assert handed is not None
        assert handed.entries[0].accepted_at == moment

    async def test_epochs_only_grow(self, talk: Talk) -> None:
        """Every new lease of a conversation has an epoch above all before."""
        epochs = []
        for name in "abc":
            grant = await talk.begin(name)
            epochs.append(grant.epoch)
            await talk.commit(grant)
        epochs.append((await talk.acquired()).epoch)
        talk.clock.advance(30)
        epochs.append((await talk.begin("d")).epoch)
        assert epochs == sorted(set(epochs))
        assert epochs[0] > 0

    async def test_places_only_grow(self, talk: Talk) -> None:
        """Accepted events are numbered in the order of acceptance."""
        answers = [await talk.accept(name) for name in "abcd"]
        seqs = [answer.seq for answer in answers]
        assert seqs == sorted(set(seqs))
        assert seqs[0] > 0

    async def test_the_first_attempt_is_counted(self, talk: Talk) -> None:
        """The entry of a grant says how often it was tried, this time included."""
        assert (await talk.begin("a")).entries[0].attempts == 1

    async def test_conversations_do_not_wait_for_each_other(self, talk: Talk) -> None:
        """A busy conversation keeps no other waiting: not another key, not the same key of another bot."""
        await talk.begin("a")
        await Talk(talk.store, talk.clock, (7, 8)).begin("a")
        await Talk(talk.store, talk.clock, ("7", 7)).begin("a")
        await Talk(talk.store, talk.clock, KEY, "another").begin("a")
        assert (await talk.accept("b")).status == "queued"

    async def test_one_of_many_is_granted(self, talk: Talk) -> None:
        """Of many events accepted at the same moment one is granted, the others wait in line."""
        answers = await asyncio.gather(*[talk.accept(f"e{n}") for n in range(20)])
        assert sorted(answer.status for answer in answers) == ["granted"] + ["queued"] * 19
        assert len({answer.seq for answer in answers}) == 20

    async def test_one_of_many_deliveries_is_granted(self, talk: Talk) -> None:
        """Of many deliveries of one event at the same moment one is granted, the others are duplicates."""
        answers = await asyncio.gather(*[talk.accept("same") for _ in range(20)])
        assert sorted(answer.status for answer in answers) == ["duplicate"] * 19 + ["granted"]

    async def test_payloads_are_kept_to_the_byte(self, talk: Talk) -> None:
        """A payload comes out of the queue to the byte as it went in."""
        payloads = [
            b'{ "b":1,\n"a": 1.0e5 }',
            '"é😀\\u0000\u2028"'.encode(),
            b"null",
            b'"' + b"x" * 200_000 + b'"',
        ]
        turn = await talk.begin("running")
        for number, payload in enumerate(payloads):
            await talk.accept(f"e{number}", payload=payload)
        for payload in payloads:
            handed = await talk.commit(turn)
            assert handed is not None
            assert handed.entries[0].payload == payload
            turn = handed

    # ------------------------------------------------------------------------------------------- duplicates

    async def test_a_claimed_event_is_a_duplicate(self, talk: Talk) -> None:
        """An id that is being handled is a duplicate and changes nothing."""
        await talk.begin("a")
        before = await talk.view()
        answer = await talk.accept("a")
        assert (answer.status, answer.grant) == ("duplicate", None)
        assert await talk.view() == before

    async def test_a_waiting_event_is_a_duplicate(self, talk: Talk) -> None:
        """An id that waits is a duplicate and changes nothing, whatever the policy."""
        await talk.busy("a", "b")
        before = await talk.view()
        for policy in (Queue(), Reject(), Debounce(), Burst(), Concurrent(), Queue(1, "drop_oldest")):
            assert (await talk.accept("a", policy)).status == "duplicate"
        assert await talk.view() == before

    async def test_a_handled_event_is_a_duplicate(self, talk: Talk) -> None:
        """An id that was handled is a duplicate and changes nothing, whatever the policy."""
        await talk.commit(await talk.begin("a"))
        before = await talk.view()
        for policy in (Queue(), Reject(), Debounce(), Burst(), Burst(5, gather=True), Concurrent()):
            answer = await talk.accept("a", policy)
            assert (answer.status, answer.grant) == ("duplicate", None)
        assert await talk.view() == before

    async def test_a_lone_event_is_a_duplicate(self, talk: Talk) -> None:
        """An id that runs concurrently is a duplicate, and one that was handled so, too."""
        grant = await talk.begin("a", Concurrent())
        assert (await talk.accept("a")).status == "duplicate"
        await talk.commit(grant)
        assert (await talk.accept("a")).status == "duplicate"

    async def test_an_event_without_an_id_is_never_a_duplicate(self, talk: Talk) -> None:
        """Events without an id are not deduplicated: each is handled, also after the other was."""
        grant = await talk.begin(None)
        assert (await talk.accept(None)).status == "queued"
        assert (await talk.accept(None)).status == "queued"
        while (handed := await talk.commit(grant)) is not None:
            grant = handed
        assert (await talk.accept(None)).status == "granted"
        assert await talk.seen() == []

    async def test_ids_belong_to_their_conversation(self, talk: Talk) -> None:
        """The same id in another conversation is another event."""
        await talk.commit(await talk.begin("a"))
        await Talk(talk.store, talk.clock, (7, 8)).begin("a")

    async def test_ids_are_compared_exactly(self, talk: Talk) -> None:
        """Ids are any text, compared exactly."""
        names = [
            "1",
            "01",
            "1.0",
            " 1",
            "a",
            "A",
            "é",
            "e\u0301",
            "",
            "\x00",
            "a:b",
            "{a}",
            "%",
            "x" * 500,
            "😀",
        ]
        for name in names:
            await talk.commit(await talk.begin(name))
        assert [(await talk.accept(name)).status for name in names] == ["duplicate"] * len(names)
        assert await talk.seen() == names

    # -------------------------------------------------------------------------------------- the seen window

    async def test_the_window_holds_the_newest(self, talk: Talk) -> None:
        """The seen window holds the newest ids up to its limit; the oldest is forgotten first."""
        talk.under(seen_limit=3)
        for name in "abcd":
            await talk.commit(await talk.begin(name))
        assert await talk.seen() == ["b", "c", "d"]
        assert (await talk.accept("b")).status == "duplicate"
        assert (await talk.accept("a")).status == "granted"

    async def test_the_window_ends_with_age(self, talk: Talk) -> None:
        """An id is forgotten when it is as old as the window, and not before."""
        talk.under(seen_age=100.0)
        await talk.commit(await talk.begin("a"))
        talk.clock.advance(99.75)
        assert (await talk.accept("a")).status == "duplicate"
        talk.clock.advance(0.25)
        assert (await talk.accept("a")).status == "granted"

    async def test_old_ids_leave_the_window(self, talk: Talk) -> None:
        """A commit removes the ids that are older than the window."""
        talk.under(seen_age=100.0)
        await talk.commit(await talk.begin("a"))
        talk.clock.advance(60)
        await talk.commit(await talk.begin("b"))
        talk.clock.advance(60)
        await talk.commit(await talk.begin("c"))
        assert await talk.seen() == ["b", "c"]

    async def test_a_smaller_window_is_trimmed(self, talk: Talk) -> None:
        """A window that has become smaller is trimmed by the next commit."""
        for name in "abcdef":
            await talk.commit(await talk.begin(name))
        talk.under(seen_limit=2)
        await talk.commit(await talk.begin("g"))
        assert await talk.seen() == ["f", "g"]

    async def test_the_window_is_ordered_within_a_moment(self, talk: Talk) -> None:
        """Of ids handled at the same moment the one handled first is forgotten first."""
        talk.under(seen_limit=5)
        for name in ("z", "b", "y", "a", "x", "c", "10", "9"):
            await talk.commit(await talk.begin(name))
        assert await talk.seen() == ["a", "x", "c", "10", "9"]

    # ----------------------------------------------------------------------------------------------- reject

    async def test_reject_answers_busy(self, talk: Talk) -> None:
        """``Reject``: an event that arrives while the conversation is busy is refused and changes nothing."""
        await talk.begin("a")
        before = await talk.view()
        answer = await talk.accept("b", Reject())
        assert (answer.status, answer.grant) == ("busy", None)
        assert await talk.view() == before

    async def test_a_rejected_event_is_handled_when_it_comes_again(self, talk: Talk) -> None:
        """``Reject`` leaves no mark: a redelivery is handled later."""
        grant = await talk.begin("a")
        await talk.accept("b", Reject())
        await talk.commit(grant)
        assert ids(await talk.begin("b", Reject())) == ["b"]

    # ------------------------------------------------------------------------------------------------ queue

    async def test_queue_lets_it_wait(self, talk: Talk) -> None:
        """``Queue``: an event that finds the conversation busy waits; the answer says how many do."""
        await talk.begin("a")
        depths = []
        for name in "bcd":
            answer = await talk.accept(name)
            assert (answer.status, answer.grant) == ("queued", None)
            depths.append(answer.depth)
        assert depths == [1, 2, 3]
        assert await talk.waiting() == ["b", "c", "d"]

    async def test_a_full_queue_refuses(self, talk: Talk) -> None:
        """``Queue`` at its limit refuses the event as ``full`` and changes nothing."""
        await talk.busy("a", "b")
        before = await talk.view()
        answer = await talk.accept("c", Queue(2))
        assert (answer.status, answer.grant, answer.dropped) == ("full", None, ())
        assert await talk.view() == before

    async def test_a_refused_event_is_handled_when_it_comes_again(self, talk: Talk) -> None:
        """``full`` leaves no mark: a redelivery is handled later."""
        grant = await talk.busy("a")
        assert (await talk.accept("b", Queue(1))).status == "full"
        await talk.commit(grant)
        assert (await talk.accept("b", Queue(1))).status == "queued"

    async def test_what_runs_does_not_count(self, talk: Talk) -> None:
        """The limit of a queue counts what waits, not what runs."""
        await talk.begin("a")
        assert (await talk.accept("b", Queue(1))).status == "queued"
        assert (await talk.accept("c", Queue(1))).status == "full"

    async def test_drop_oldest_gives_up_the_oldest(self, talk: Talk) -> None:
        """``Queue(on_full="drop_oldest")`` gives up what waits longest, says so, and marks it as seen."""
        await talk.busy("a", "b")
        answer = await talk.accept("c", Queue(2, "drop_oldest"))
        assert (answer.status, answer.dropped) == ("queued", (Dropped("a", "oldest"),))
        assert await talk.waiting() == ["b", "c"]
        assert (await talk.accept("a")).status == "duplicate"

    async def test_drop_newest_gives_up_the_newest(self, talk: Talk) -> None:
        """``Queue(on_full="drop_newest")`` gives up the event itself, says so, and marks it as seen."""
        await talk.busy("a", "b")
        answer = await talk.accept("c", Queue(2, "drop_newest"))
        assert (answer.status, answer.dropped) == ("dropped", (Dropped("c", "newest"),))
        assert await talk.waiting() == ["a", "b"]
        assert (await talk.accept("c")).status == "duplicate"

    async def test_below_the_limit_nothing_is_dropped(self, talk: Talk) -> None:
        """``on_full`` acts at the limit and not below it."""
        await talk.begin("running")
        for name, policy in (("a", Queue(3, "drop_oldest")), ("b", Queue(3, "drop_newest")), ("c", Queue(3))):
            answer = await talk.accept(name, policy)
            assert (answer.status, answer.dropped) == ("queued", ())
        assert await talk.waiting() == ["a", "b", "c"]

    async def test_expired_entries_do_not_count(self, talk: Talk) -> None:
        """Entries past their time never count against the limit: they are given up, told, and seen."""
        await talk.busy("a", overlap=Queue(1, expires=10))
        talk.clock.advance(9.75)
        assert (await talk.accept("b", Queue(1))).status == "full"
        talk.clock.advance(0.25)
        answer = await talk.accept("b", Queue(1))
        assert (answer.status, answer.dropped) == ("queued", (Dropped("a", "expired"),))
        assert await talk.waiting() == ["b"]
        assert (await talk.accept("a")).status == "duplicate"

    async def test_expired_entries_are_not_handed_on(self, talk: Talk) -> None:
        """An entry past its time is not handed on by a commit; the answer says that it was given up."""
        grant = await talk.busy("a", overlap=Queue(expires=10))
        await talk.accept("b")
        talk.clock.advance(10)
        answer = await talk.settle(grant)
        assert answer.dropped == (Dropped("a", "expired"),)
        assert ids(answer.grant) == ["b"]

    async def test_expired_entries_are_not_taken_over(self, talk: Talk) -> None:
        """An entry past its time is not taken over; the answer says that it was given up."""
        grant = await talk.busy("a", overlap=Queue(expires=10))
        await talk.settle(grant, keep=False)
        talk.clock.advance(10)
        answer = await talk.take_over()
        assert (answer.status, answer.grant, answer.dropped) == ("nothing", None, (Dropped("a", "expired"),))
        assert await talk.waiting() == []

    async def test_a_refusal_tells_what_expired(self, talk: Talk) -> None:
        """A refusal that finds entries past their time gives them up and says so, once."""
        await talk.busy("a", overlap=Queue(expires=10))
        talk.clock.advance(10)
        answer = await talk.accept("b", Reject())
        assert (answer.status, answer.dropped) == ("busy", (Dropped("a", "expired"),))
        assert (await talk.accept("b", Reject())).dropped == ()

    async def test_what_is_claimed_does_not_expire(self, talk: Talk) -> None:
        """An entry that is being handled no longer expires."""
        grant = await talk.busy("a", overlap=Queue(expires=10))
        handed = await talk.commit(grant)
        assert handed is not None
        talk.clock.advance(20)
        assert (await talk.accept("b")).dropped == ()
        await talk.commit(handed, setting(done=1))
        assert await talk.data() == {"done": 1}

    async def test_what_has_no_time_waits_for_ever(self, talk: Talk) -> None:
        """An entry without a time of its own waits as long as it must."""
        grant = await talk.busy("a")
        talk.clock.advance(31_536_000)
        assert ids(await talk.commit(grant)) == ["a"]

    # --------------------------------------------------------------------------------------------- debounce

    async def test_debounce_of_a_free_conversation_runs_at_once(self, talk: Talk) -> None:
        """``Debounce``: in a free conversation the event is granted at once."""
        assert ids(await talk.begin("a", Debounce(5))) == ["a"]

    async def test_debounce_lets_only_the_newest_wait(self, talk: Talk) -> None:
        """``Debounce``: a newer event replaces the one that waits, which is given up, told, and seen."""
        await talk.begin("running")
        assert (await talk.accept("a", Debounce(5))).status == "debounced"
        answer = await talk.accept("b", Debounce(5))
        assert (answer.status, answer.dropped) == ("debounced", (Dropped("a", "superseded"),))
        assert await talk.waiting() == ["b"]
        assert (await talk.accept("a")).status == "duplicate"

    async def test_debounce_waits_for_its_window(self, talk: Talk) -> None:
        """A debounced event is not handed on before its window is over; ``wake_at`` says when."""
        grant = await talk.begin("running")
        await talk.accept("a", Debounce(5))
        answer = await talk.settle(grant)
        assert answer.grant is None
        assert answer.wake_at == talk.clock() + 5
        talk.clock.advance(4.75)
        assert (await talk.take_over()).status == "nothing"
        talk.clock.advance(0.25)
        assert ids(await talk.taken()) == ["a"]

    async def test_debounce_restarts_its_window(self, talk: Talk) -> None:
        """``Debounce``: every newer event restarts the window."""
        grant = await talk.begin("running")
        await talk.accept("a", Debounce(5))
        talk.clock.advance(4)
        await talk.accept("b", Debounce(5))
        talk.clock.advance(4)
        assert (await talk.settle(grant)).grant is None
        talk.clock.advance(1)
        assert ids(await talk.taken()) == ["b"]

    async def test_debounce_that_is_over_is_handed_on(self, talk: Talk) -> None:
        """A debounced event whose window is over is handed on like any other."""
        grant = await talk.begin("running")
        await talk.accept("a", Debounce(5))
        talk.clock.advance(5)
        assert ids(await talk.commit(grant)) == ["a"]

    async def test_debounce_waits_in_a_free_conversation_too(self, talk: Talk) -> None:
        """While its window is open, a newer event replaces the debounced one, the lease held or not."""
        grant = await talk.begin("running")
        await talk.accept("a", Debounce(5))
        await talk.commit(grant)
        talk.clock.advance(3)
        answer = await talk.accept("b", Debounce(5))
        assert (answer.status, answer.dropped) == ("debounced", (Dropped("a", "superseded"),))
        assert answer.wake_at == talk.clock() + 5

    async def test_debounce_leaves_the_queue_alone(self, talk: Talk) -> None:
        """``Debounce`` replaces debounced events only, not those that wait in the queue."""
        await talk.busy("a")
        await talk.accept("b", Debounce(5))
        await talk.accept("c", Debounce(5))
        assert await talk.waiting() == ["a", "c"]

    async def test_others_pass_an_open_window(self, talk: Talk) -> None:
        """What does not debounce is not kept waiting by an open window."""
        grant = await talk.begin("running")
        await talk.accept("a", Debounce(5))
        await talk.commit(grant)
        assert ids(await talk.begin("b")) == ["b"]

    async def test_a_window_is_not_ended_by_a_redelivery(self, talk: Talk) -> None:
        """A redelivery of an event that waits for its window is a duplicate, and the window stays."""
        grant = await talk.begin("running")
        await talk.accept("a", Debounce(5))
        await talk.commit(grant)
        before = await talk.view()
        answer = await talk.accept("a", Debounce(5))
        assert (answer.status, answer.grant) == ("duplicate", None)
        assert await talk.view() == before

    # ------------------------------------------------------------------------------------------------ burst

    async def test_burst_of_a_free_conversation_runs_at_once(self, talk: Talk) -> None:
        """``Burst``: in a free conversation the event is granted at once, alone."""
        assert ids(await talk.begin("a", Burst(5))) == ["a"]

    async def test_burst_folds_what_waits(self, talk: Talk) -> None:
        """``Burst(0)`` folds whatever arrived during the running turn into one turn, oldest first."""
        grant = await talk.busy("a", "b", "c", overlap=Burst())
        handed = await talk.commit(grant)
        assert ids(handed) == ["a", "b", "c"]
        assert await talk.waiting() == []

    async def test_burst_is_committed_as_one(self, talk: Talk) -> None:
        """A folded turn marks all its events as seen with one commit."""
        grant = await talk.busy("a", "b", overlap=Burst())
        handed = await talk.commit(grant)
        assert handed is not None
        assert await talk.commit(handed) is None
        assert await talk.seen() == ["running", "a", "b"]

    async def test_burst_waits_for_its_window(self, talk: Talk) -> None:
        """``Burst(window)``: what waits is not handed on before its window is over; ``wake_at`` says when."""
        grant = await talk.begin("running")
        await talk.accept("a", Burst(5))
        answer = await talk.settle(grant)
        assert (answer.grant, answer.wake_at) == (None, talk.clock() + 5)
        talk.clock.advance(4.75)
        assert (await talk.take_over()).status == "nothing"
        talk.clock.advance(0.25)
        assert ids(await talk.taken()) == ["a"]

    async def test_burst_opens_its_window_once(self, talk: Talk) -> None:
        """``Burst``: the window opens with the first event that has to wait; later ones do not restart it."""
        grant = await talk.begin("running")
        await talk.accept("a", Burst(5))
        talk.clock.advance(4)
        await talk.accept("b", Burst(5))
        await talk.commit(grant)
        talk.clock.advance(1)
        assert ids(await talk.taken()) == ["a", "b"]

    async def test_burst_joins_in_a_free_conversation_too(self, talk: Talk) -> None:
        """While its window is open, a newer event joins the burst although nobody holds the lease."""
        grant = await talk.begin("running")
        await talk.accept("a", Burst(5))
        await talk.commit(grant)
        talk.clock.advance(3)
        assert (await talk.accept("b", Burst(5))).status == "queued"
        talk.clock.advance(2)
        assert ids(await talk.taken()) == ["a", "b"]

    async def test_burst_has_a_limit(self, talk: Talk) -> None:
        """``Burst`` at its limit refuses the event as ``full`` and changes nothing."""
        await talk.busy("a", "b", overlap=Burst())
        before = await talk.view()
        assert (await talk.accept("c", Burst(limit=2))).status == "full"
        assert await talk.view() == before

    async def test_burst_may_gather(self, talk: Talk) -> None:
        """``Burst(gather=True)``: a free conversation waits for the window too, all in one turn."""
        for name in "abc":
            answer = await talk.accept(name, Burst(2, gather=True))
            assert (answer.status, answer.grant, answer.wake_at) == ("queued", None, talk.clock() + 2)
        assert (await talk.take_over()).status == "nothing"
        talk.clock.advance(2)
        assert ids(await talk.taken()) == ["a", "b", "c"]

    async def test_burst_stays_in_order(self, talk: Talk) -> None:
        """A burst does not reach over an event that was accepted in between and runs alone."""
        grant = await talk.busy("a", overlap=Burst())
        await talk.accept("b")
        await talk.accept("c", Burst())
        order = []
        turn = await talk.commit(grant)
        while turn is not None:
            order.append(ids(turn))
            turn = await talk.commit(turn)
        assert order == [["a"], ["b"], ["c"]]

    async def test_a_new_event_joins_the_leftover_burst(self, talk: Talk) -> None:
        """A new event of a burst joins what a dead lease left of one: one turn, the new event last."""
        grant = await talk.busy("a", overlap=Burst())
        await talk.settle(grant, keep=False)
        assert ids(await talk.begin("b", Burst())) == ["a", "b"]

    # ------------------------------------------------------------------------------------------- concurrent

    async def test_concurrent_runs_beside_the_others(self, talk: Talk) -> None:
        """``Concurrent``: the event runs at once, in a busy conversation too, and leaves the lease alone."""
        running = await talk.begin("running")
        lease = (await talk.document()).lease
        grants = [await talk.begin(name, Concurrent()) for name in "ab"]
        assert [(ids(grant), grant.lone) for grant in grants] == [(["a"], True), (["b"], True)]
        assert (await talk.document()).lease == lease
        await talk.commit(running, setting(running=1))
        assert await talk.data() == {"running": 1}

    async def test_concurrent_takes_no_lease(self, talk: Talk) -> None:
        """``Concurrent`` in a free conversation leaves it free for others."""
        await talk.begin("a", Concurrent())
        assert (await talk.document()).lease is None
        grant = await talk.begin("b")
        assert ids(grant) == ["b"]
        assert not grant.lone

    async def test_concurrent_has_a_limit(self, talk: Talk) -> None:
        """``Concurrent`` at its limit refuses the event as ``busy`` and changes nothing."""
        grant = await talk.begin("a", Concurrent(2))
        await talk.begin("b", Concurrent(2))
        before = await talk.view()
        assert (await talk.accept("c", Concurrent(2))).status == "busy"
        assert await talk.view() == before
        await talk.commit(grant)
        await talk.begin("c", Concurrent(2))

    async def test_concurrent_turns_past_their_time_do_not_count(self, talk: Talk) -> None:
        """A concurrent turn past its deadline no longer counts against the limit."""
        await talk.begin("a", Concurrent(1))
        talk.clock.advance(29.75)
        assert (await talk.accept("b", Concurrent(1))).status == "busy"
        talk.clock.advance(0.25)
        await talk.begin("b", Concurrent(1))

    async def test_concurrent_carries_the_record(self, talk: Talk) -> None:
        """The grant of a concurrent turn carries the record too."""
        await talk.store.set_data(BOT, KEY, {"a": 1})
        grant = await talk.begin("a", Concurrent())
        assert grant.record is not None
        assert grant.record.to_record().data == {"a": 1}

    # ------------------------------------------------------------------------------------ policies by flow

    async def test_a_flow_may_have_its_own_policy(self, talk: Talk) -> None:
        """Where flows have policies of their own, that of the active flow is used, else the default."""
        policies = ByFlow(Reject(), {"signup": Queue(), "order": Concurrent()})
        await talk.begin("running")
        answers = [(await talk.accept("a", policies)).status]
        for number, flow in enumerate(("signup", "order", "unknown")):
            await talk.store.set_state(BOT, KEY, Record(flow))
            answers.append((await talk.accept(f"e{number}", policies)).status)
        assert answers == ["busy", "queued", "granted", "busy"]

    async def test_a_flow_that_is_over_has_no_policy(self, talk: Talk) -> None:
        """The policy of a flow ends with its record, also when that expires."""
        talk.under(record_ttl=60.0)
        await talk.commit(await talk.begin("a"), to_state("signup", "name"))
        talk.clock.advance(50)
        await talk.begin("running")
        policies = ByFlow(Reject(), {"signup": Queue()})
        assert (await talk.accept("b", policies)).status == "queued"
        talk.clock.advance(10)
        assert (await talk.accept("c", policies)).status == "busy"

    # ---------------------------------------------------------------------------- dead leases and leftovers

    async def test_a_lease_ends_at_its_deadline(self, talk: Talk) -> None:
        """A conversation is busy until the deadline of its lease, and free from that moment on."""
        await talk.begin("a")
        talk.clock.advance(29.75)
        assert (await talk.accept("b", Reject())).status == "busy"
        talk.clock.advance(0.25)
        assert (await talk.accept("b", Reject())).grant is not None

    async def test_leftovers_come_before_the_new_event(self, talk: Talk) -> None:
        """A new event in a conversation with a dead lease waits, and what was left over is granted first."""
        old = await talk.busy("a")
        talk.clock.advance(30)
        answer = await talk.accept("b")
        assert answer.status == "queued"
        assert ids(answer.grant) == ["running"]
        assert answer.grant is not None
        assert answer.grant.epoch > old.epoch
        assert await talk.waiting() == ["a", "b"]

    async def test_leftovers_come_oldest_first(self, talk: Talk) -> None:
        """What was left over is handled in the order of acceptance, and the new event after it."""
        await talk.busy("a", "b")
        talk.clock.advance(30)
        turn = (await talk.accept("c")).grant
        order = []
        while turn is not None:
            order += ids(turn)
            turn = await talk.commit(turn)
        assert order == ["running", "a", "b", "c"]

    async def test_what_was_given_back_comes_before_the_new_event(self, talk: Talk) -> None:
        """A new event does not pass what waits in a free conversation."""
        grant = await talk.busy("a")
        await talk.settle(grant, keep=False)
        answer = await talk.accept("b")
        assert answer.status == "queued"
        assert ids(answer.grant) == ["a"]

    async def test_a_redelivery_takes_over(self, talk: Talk) -> None:
        """A redelivery of an event whose lease is dead takes it over instead of being a duplicate."""
        old = await talk.begin("a")
        talk.clock.advance(30)
        answer = await talk.accept("a", Reject())
        assert answer.status == "granted"
        assert ids(answer.grant) == ["a"]
        assert answer.grant is not None
        assert answer.grant.epoch > old.epoch
        assert answer.seq == old.entries[0].seq
        assert answer.grant.entries[0].attempts == 2

    async def test_a_redelivery_takes_over_what_comes_before_it(self, talk: Talk) -> None:
        """A redelivery of what waits behind a dead lease is a duplicate that brings the oldest to run."""
        await talk.busy("a")
        talk.clock.advance(30)
        answer = await talk.accept("a")
        assert answer.status == "duplicate"
        assert ids(answer.grant) == ["running"]
        assert await talk.waiting() == ["a"]

    async def test_a_redelivery_ends_the_wait_for_a_retry(self, talk: Talk) -> None:
        """A redelivery of an event that waits for its retry runs it at once, if the conversation is free."""
        grant = await talk.begin("a")
        await talk.settle(grant, verdict="retry", delay=60)
        answer = await talk.accept("a")
        assert answer.status == "granted"
        assert ids(answer.grant) == ["a"]

    async def test_a_redelivery_to_a_busy_conversation_waits_on(self, talk: Talk) -> None:
        """A redelivery of an event that waits for its retry is a duplicate while the conversation is busy."""
        await talk.settle(await talk.begin("a"), verdict="retry", delay=60)
        await talk.begin("b")
        before = await talk.view()
        assert (await talk.accept("a")).status == "duplicate"
        assert await talk.view() == before

    async def test_a_redelivery_takes_over_a_lone_turn(self, talk: Talk) -> None:
        """A redelivery of a concurrent turn past its deadline runs it again, and the old one is fenced."""
        old = await talk.begin("a", Concurrent())
        talk.clock.advance(30)
        new = await talk.begin("a", Concurrent())
        await talk.fenced(old)
        await talk.commit(new, setting(a=1))
        assert await talk.data() == {"a": 1}

    async def test_what_killed_its_workers_is_given_up(self, talk: Talk) -> None:
        """An event that was claimed ``max_attempts`` times without being settled becomes a dead letter."""
        await talk.begin("a")
        for _ in range(2):
            talk.clock.advance(30)
            assert ids(await talk.taken()) == ["a"]
        talk.clock.advance(30)
        answer = await talk.take_over()
        assert (answer.status, answer.dropped) == ("nothing", (Dropped("a", "dead"),))
        assert [(letter.event_id, letter.attempts) for letter in (await talk.document()).dead] == [("a", 3)]

    async def test_what_is_given_up_lets_the_next_through(self, talk: Talk) -> None:
        """What waited behind an event that killed its workers is granted in its place."""
        talk.under(max_attempts=1)
        await talk.busy("b")
        talk.clock.advance(30)
        answer = await talk.accept("c")
        assert ids(answer.grant) == ["b"]
        assert answer.dropped == (Dropped("running", "dead"),)
        assert (await talk.accept("running")).status == "duplicate"

    async def test_a_held_up_line_answers_by_policy(self, talk: Talk) -> None:
        """A line held up by a retry in order is as good as busy: the policy decides, and its limit holds."""
        talk.under(retry_in_order=True)
        await talk.settle(await talk.begin("a"), verdict="retry", delay=60)
        assert (await talk.accept("b", Reject())).status == "busy"
        assert (await talk.accept("b", Queue(1))).status == "full"
        answer = await talk.accept("b", Queue(2))
        assert (answer.status, answer.grant, answer.wake_at) == ("queued", None, talk.clock() + 60)
