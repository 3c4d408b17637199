"""The clauses of ending a turn and of the lease: commit, hand on, fail, renew, release, take over, expire."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from msgspec.structs import replace

from hitherto import codec
from hitherto.errors import DataError
from hitherto.overlap import Burst, Concurrent, Queue, Reject
from hitherto.protocol import Claim, Dropped
from hitherto.records import Patch, Record
from hitherto.stores.base import Store
from hitherto.testing.clock import ManualClock
from hitherto.testing.fsm import same
from hitherto.testing.kit import BOT, KEY, Contract, Talk, ids, refuses, setting, to_state


class SettleContract(Contract):
    """What is promised of every operation of a turn but ``accept``."""

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

    # -------------------------------------------------------------------------------------------- the patch

    async def test_a_commit_sets_data(self, talk: Talk) -> None:
        """A commit sets the data of its patch and keeps the rest."""
        await talk.store.set_data(BOT, KEY, {"kept": 1, "changed": 1})
        await talk.commit(await talk.begin("a"), setting(changed=2, added=[3]))
        assert await talk.data() == {"kept": 1, "changed": 2, "added": [3]}

    async def test_a_commit_removes_data(self, talk: Talk) -> None:
        """A commit removes the keys its patch names; to remove what is not there is no error."""
        await talk.store.set_data(BOT, KEY, {"kept": 1, "gone": 1})
        await talk.commit(await talk.begin("a"), Patch(removed=("gone", "never")))
        assert await talk.data() == {"kept": 1}

    async def test_a_commit_moves(self, talk: Talk) -> None:
        """A commit writes flow, state and version when its patch says that they moved."""
        await talk.commit(await talk.begin("a"), to_state("signup", "name", 3, a=1))
        assert await talk.record() == Record("signup", "name", {"a": 1}, 3)
        await talk.commit(await talk.begin("b"), to_state(None, None))
        assert await talk.record() == Record(None, None, {"a": 1})

    async def test_a_commit_that_does_not_move_keeps_the_state(self, talk: Talk) -> None:
        """A patch that did not move keeps flow, state and version as they are."""
        await talk.store.set_state(BOT, KEY, Record("signup", "name", {}, 3))
        await talk.commit(await talk.begin("a"), setting(a=1))
        assert await talk.record() == Record("signup", "name", {"a": 1}, 3)

    async def test_a_commit_may_clear(self, talk: Talk) -> None:
        """A patch that cleared leaves no record, also of what others added meanwhile."""
        await talk.store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        grant = await talk.begin("a")
        await talk.store.update_data(BOT, KEY, {"meanwhile": 1})
        await talk.commit(grant, Patch(cleared=True))
        assert await talk.record() is None
        assert not await talk.is_filed("record")

    async def test_a_commit_may_clear_and_start(self, talk: Talk) -> None:
        """A patch that cleared and moved starts with its own data only."""
        await talk.store.set_state(BOT, KEY, Record("order", "size", {"old": 1}, 2))
        patch = Patch(codec.encode({"new": 1}), (), True, "signup", "name", 5, cleared=True)
        await talk.commit(await talk.begin("a"), patch)
        assert await talk.record() == Record("signup", "name", {"new": 1}, 5)

    async def test_an_empty_patch_writes_no_record(self, talk: Talk) -> None:
        """A turn that changed nothing makes no record and changes none."""
        assert await talk.commit(await talk.begin("a")) is None
        assert await talk.record() is None
        await talk.store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        await talk.commit(await talk.begin("b"))
        assert await talk.record() == Record("signup", "name", {"a": 1})

    async def test_a_commit_is_a_patch(self, talk: Talk) -> None:
        """What others wrote under other keys while the turn ran is not lost."""
        await talk.store.set_data(BOT, KEY, {"a": 1})
        grant = await talk.begin("a")
        await talk.store.update_data(BOT, KEY, {"meanwhile": 1, "a": 5})
        await talk.commit(grant, setting(b=2))
        assert await talk.data() == {"a": 5, "meanwhile": 1, "b": 2}

    async def test_a_commit_on_a_cleared_record_makes_one(self, talk: Talk) -> None:
        """A patch on a record that was cleared meanwhile makes a new one of what it sets."""
        await talk.store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        grant = await talk.begin("a")
        await talk.store.clear(BOT, KEY)
        await talk.commit(grant, setting(b=2))
        assert await talk.record() == Record(None, None, {"b": 2})

    async def test_data_is_committed_exactly(self, talk: Talk) -> None:
        """A commit keeps values to the digit and to the character."""
        data = {"n": 2**70, "f": 1e16, "t": "\x00😀", "e": [{}, [], ""], "\x00": None, "é.{}": True}
        await talk.commit(await talk.begin("a"), Patch(set=codec.encode(data)))
        assert same(await talk.data(), data)

    async def test_a_record_over_the_limit_is_refused(self, talk: Talk) -> None:
        """A commit that would make the record too large is a ``DataError``, and nothing changes."""
        await talk.store.set_data(BOT, KEY, {"a": "x" * 600_000})
        grant = await talk.begin("a")
        before = await talk.view()
        with refuses(DataError):
            await talk.settle(grant, setting(b="y" * 600_000))
        assert await talk.view() == before
        await talk.commit(grant, setting(ok=1))

    async def test_records_expire(self, talk: Talk) -> None:
        """A record with a time to live is gone when that is over, for every reader; each commit renews it."""
        talk.under(record_ttl=100.0)
        await talk.commit(await talk.begin("a"), to_state("signup", "name", a=1))
        talk.clock.advance(60)
        await talk.commit(await talk.begin("b"), setting(b=2))
        talk.clock.advance(99.75)
        assert await talk.data() == {"a": 1, "b": 2}
        talk.clock.advance(0.25)
        assert await talk.record() is None
        assert await talk.data() is None
        assert (await talk.begin("c")).record is None

    async def test_an_expired_record_does_not_come_back(self, talk: Talk) -> None:
        """A commit or an update on an expired record starts from nothing."""
        talk.under(record_ttl=100.0)
        await talk.commit(await talk.begin("a"), to_state("signup", "name", a=1))
        grant = await talk.begin("b")
        talk.clock.advance(100)
        assert await talk.store.update_data(BOT, KEY, {"c": 3}) == {"c": 3}
        await talk.commit(grant, setting(b=2))
        assert await talk.record() == Record(None, None, {"b": 2, "c": 3})

    # ------------------------------------------------------------------------- acknowledgement and fencing

    async def test_a_commit_acknowledges(self, talk: Talk) -> None:
        """A commit moves its event to the seen window and frees the conversation."""
        assert await talk.commit(await talk.begin("a")) is None
        document = await talk.document()
        assert (document.inbox, document.lease, list(document.seen)) == ((), None, ["a"])

    async def test_effect_and_acknowledgement_are_one(self, talk: Talk) -> None:
        """A commit that is fenced neither changes the record nor acknowledges the event."""
        grant = await talk.busy("b")
        talk.clock.advance(30)
        taken = await talk.taken()
        await talk.fenced(grant)
        assert ids(taken) == ["running"]
        assert (await talk.seen(), await talk.record()) == ([], None)

    async def test_who_was_taken_over_is_fenced(self, talk: Talk) -> None:
        """Whoever was taken over can commit nothing, whatever the clock says then."""
        grant = await talk.begin("a")
        moment = talk.clock()
        talk.clock.advance(30)
        await talk.taken()
        talk.clock.set(moment)
        await talk.fenced(grant)

    async def test_who_was_late_but_not_taken_over_commits(self, talk: Talk) -> None:
        """A lease past its deadline that nobody took over may still commit."""
        grant = await talk.begin("a")
        talk.clock.advance(3000)
        await talk.commit(grant, setting(a=1))
        assert await talk.data() == {"a": 1}

    async def test_a_turn_commits_once(self, talk: Talk) -> None:
        """A turn that was committed cannot be committed again."""
        grant = await talk.begin("a")
        await talk.commit(grant)
        await talk.fenced(grant)

    async def test_a_turn_commits_once_though_its_lease_goes_on(self, talk: Talk) -> None:
        """A committed turn cannot be committed again under the lease that was handed on: a claim names its
        entries.
        """
        grant = await talk.busy("a")
        handed = await talk.commit(grant)
        assert handed is not None
        await talk.fenced(grant)
        assert await talk.renew(grant) == [False]
        assert (await talk.release(grant)).status == "fenced"
        await talk.commit(handed, setting(a=1))

    async def test_one_of_many_commits_wins(self, talk: Talk) -> None:
        """Of many commits of one turn at the same moment one succeeds, and its patch is the one applied."""
        grant = await talk.begin("a")
        answers = await asyncio.gather(*[talk.settle(grant, setting(**{f"k{n}": n})) for n in range(10)])
        statuses = [answer.status for answer in answers]
        assert sorted(statuses) == ["committed"] + ["fenced"] * 9
        winner = statuses.index("committed")
        assert await talk.data() == {f"k{winner}": winner}

    async def test_a_later_epoch_is_no_right(self, talk: Talk) -> None:
        """A claim with an epoch that nobody was given is fenced."""
        grant = await talk.begin("a")
        for epoch in (grant.epoch + 1, grant.epoch - 1, 0, 10**9):
            await talk.fenced(replace(grant.claim, epoch=epoch))

    async def test_a_claim_to_nothing_is_fenced(self, talk: Talk) -> None:
        """In a conversation where nothing ever happened every claim is fenced and leaves nothing behind."""
        await talk.fenced(Claim(1, (1,)))
        await talk.fenced(Claim(0, ()))
        await talk.fenced(Claim(0, (1,), lone=True, attempt=1))
        assert await talk.renew() == []
        assert not await talk.is_filed("all")

    # --------------------------------------------------------------------------------------------- hand-off

    async def test_what_waits_is_handed_on(self, talk: Talk) -> None:
        """A commit hands the oldest waiting event back, with the lease kept."""
        grant = await talk.busy("a", "b")
        handed = await talk.commit(grant)
        assert ids(handed) == ["a"]
        assert handed is not None
        assert handed.epoch == grant.epoch
        assert await talk.waiting() == ["b"]

    async def test_nobody_slips_in(self, talk: Talk) -> None:
        """After a hand-off the conversation is still busy: a new event queues behind what waits."""
        handed = await talk.commit(await talk.busy("a"))
        assert (await talk.accept("b", owner="bob")).status == "queued"
        assert (await talk.acquire(owner="bob")).status == "busy"
        assert handed is not None
        assert ids(await talk.commit(handed)) == ["b"]

    async def test_a_hand_off_renews_the_lease(self, talk: Talk) -> None:
        """What is handed on gets a lease of full length."""
        grant = await talk.busy("a")
        talk.clock.advance(20)
        handed = await talk.commit(grant)
        assert handed is not None
        assert handed.deadline == talk.clock() + 30
        talk.clock.advance(29.75)
        assert (await talk.accept("b", Reject())).status == "busy"

    async def test_a_hand_off_carries_the_new_record(self, talk: Talk) -> None:
        """What is handed on starts from the record as the commit left it."""
        grant = await talk.busy("a")
        handed = await talk.commit(grant, to_state("signup", "name", a=1))
        assert handed is not None
        assert handed.record is not None
        assert handed.record.to_record() == Record("signup", "name", {"a": 1})

    async def test_events_are_handed_on_in_order(self, talk: Talk) -> None:
        """Events are handed on in the order of acceptance, one by one, whoever delivered them."""
        turn = await talk.busy(*"abcdefgh")
        order = []
        while (handed := await talk.commit(turn)) is not None:
            order += ids(handed)
            turn = handed
        assert order == list("abcdefgh")

    async def test_nothing_is_stranded_by_the_last_commit(self, talk: Talk) -> None:
        """An event that comes at the moment of the last commit is handed on or granted, never stranded."""
        for number in range(10):
            turn = await talk.begin(f"first{number}")
            committed, accepted = await asyncio.gather(talk.settle(turn), talk.accept(f"second{number}"))
            grant = committed.grant or accepted.grant
            assert ids(grant) == [f"second{number}"]
            assert grant is not None
            await talk.commit(grant)

    async def test_a_commit_may_give_the_lease_up(self, talk: Talk) -> None:
        """A commit that does not want more frees the conversation; what waits is due at once."""
        grant = await talk.busy("a")
        answer = await talk.settle(grant, keep=False)
        assert (answer.status, answer.grant, answer.depth) == ("committed", None, 1)
        assert answer.wake_at is not None
        assert answer.wake_at <= talk.clock()
        assert await talk.is_filed("due")
        assert ids(await talk.taken()) == ["a"]

    async def test_the_answer_says_how_many_wait(self, talk: Talk) -> None:
        """The answer to a commit says how many still wait."""
        answer = await talk.settle(await talk.busy("a", "b", "c"))
        assert answer.depth == 2

    # ---------------------------------------------------------------------------------------------- failure

    async def test_a_retry_leaves_no_mark(self, talk: Talk) -> None:
        """An event to be tried again is not marked as seen, and waits."""
        await talk.settle(await talk.begin("a"), verdict="retry", delay=10)
        assert await talk.seen() == []
        assert await talk.waiting() == ["a"]

    async def test_a_retry_waits_for_its_time(self, talk: Talk) -> None:
        """A retry waits as long as it was told; ``wake_at`` says until when; then it is tried again and
        counted.
        """
        answer = await talk.settle(await talk.begin("a"), verdict="retry", delay=10)
        assert (answer.grant, answer.wake_at) == (None, talk.clock() + 10)
        talk.clock.advance(9.75)
        assert (await talk.take_over()).status == "nothing"
        talk.clock.advance(0.25)
        grant = await talk.taken()
        assert [(entry.event_id, entry.attempts) for entry in grant.entries] == [("a", 2)]

    async def test_a_retry_without_delay_comes_next(self, talk: Talk) -> None:
        """A retry without a delay is handed back at once, before what waits behind it."""
        grant = await talk.busy("a")
        answer = await talk.settle(grant, verdict="retry")
        assert ids(answer.grant) == ["running"]

    async def test_a_retry_lets_others_pass(self, talk: Talk) -> None:
        """What waited behind an event that failed is handed on at once."""
        grant = await talk.busy("a", "b")
        answer = await talk.settle(grant, verdict="retry", delay=10)
        assert ids(answer.grant) == ["a"]
        assert answer.grant is not None
        assert ids(await talk.commit(answer.grant)) == ["b"]

    async def test_a_retry_is_handed_on_when_its_time_has_come(self, talk: Talk) -> None:
        """A retry whose time has come is handed on before what was accepted after it."""
        answer = await talk.settle(await talk.busy("a", "b"), verdict="retry", delay=10)
        talk.clock.advance(10)
        assert answer.grant is not None
        assert ids(await talk.commit(answer.grant)) == ["running"]

    async def test_a_retry_in_order_holds_up_the_line(self, talk: Talk) -> None:
        """With ``retry_in_order`` the line waits for the retry."""
        talk.under(retry_in_order=True)
        answer = await talk.settle(await talk.busy("a"), verdict="retry", delay=10)
        assert (answer.grant, answer.wake_at) == (None, talk.clock() + 10)
        assert (await talk.take_over()).status == "nothing"
        talk.clock.advance(10)
        turn = await talk.taken()
        assert ids(turn) == ["running"]
        assert ids(await talk.commit(turn)) == ["a"]

    async def test_a_retry_does_not_expire(self, talk: Talk) -> None:
        """What was tried once no longer expires in the queue."""
        handed = await talk.commit(await talk.busy("a", overlap=Queue(expires=5)))
        assert handed is not None
        await talk.settle(handed, verdict="retry", delay=60)
        talk.clock.advance(60)
        assert ids(await talk.taken()) == ["a"]

    async def test_a_failure_commits_what_its_patch_says(self, talk: Talk) -> None:
        """A turn that ends in a retry or a dead letter without a patch changes no record."""
        await talk.store.set_data(BOT, KEY, {"a": 1})
        await talk.settle(await talk.begin("a"), verdict="retry", delay=10)
        await talk.settle(await talk.begin("b"), verdict="dead")
        assert await talk.record() == Record(None, None, {"a": 1})

    async def test_attempts_are_bounded(self, talk: Talk) -> None:
        """After ``max_attempts`` a retry is a dead letter, and the answer says so."""
        grant = await talk.begin("a")
        for _ in range(2):
            answer = await talk.settle(grant, verdict="retry")
            assert answer.dropped == ()
            assert answer.grant is not None
            grant = answer.grant
        answer = await talk.settle(grant, verdict="retry", error="it raised")
        assert (answer.status, answer.grant) == ("committed", None)
        assert answer.dropped == (Dropped("a", "dead"),)
        assert [letter.attempts for letter in (await talk.document()).dead] == [3]

    async def test_a_folded_turn_fails_as_one(self, talk: Talk) -> None:
        """When a folded turn is to be tried again, all its events are, together."""
        handed = await talk.commit(await talk.busy("a", "b", overlap=Burst()))
        assert handed is not None
        await talk.settle(handed, verdict="retry", delay=10)
        assert await talk.waiting() == ["a", "b"]
        talk.clock.advance(10)
        assert ids(await talk.taken()) == ["a", "b"]

    async def test_a_discarded_event_is_seen(self, talk: Talk) -> None:
        """An event that failed and is discarded is acknowledged without a patch: seen, and no dead letter."""
        await talk.settle(await talk.begin("a"), verdict="done")
        assert await talk.seen() == ["a"]
        assert (await talk.document()).dead == ()

    # ----------------------------------------------------------------------------------------- dead letters

    async def test_a_dead_letter_keeps_everything(self, talk: Talk) -> None:
        """A dead letter keeps id, payload, attempts, when it was accepted, when it died and of what."""
        moment = talk.clock()
        answer = await talk.accept("a", payload=b'{"text":"\xc3\xa9"}')
        assert answer.grant is not None
        talk.clock.advance(5)
        settled = await talk.settle(answer.grant, verdict="dead", error="ValueError: no\n  line 2 é")
        assert settled.dropped == (Dropped("a", "dead"),)
        (letter,) = (await talk.document()).dead
        assert (letter.seq, letter.event_id, letter.payload) == (answer.seq, "a", b'{"text":"\xc3\xa9"}')
        assert (letter.attempts, letter.error) == (1, "ValueError: no\n  line 2 é")
        assert (letter.accepted_at, letter.died_at) == (moment, moment + 5)

    async def test_a_dead_event_is_seen(self, talk: Talk) -> None:
        """An event that became a dead letter is seen: a redelivery is a duplicate."""
        await talk.bury("a")
        assert await talk.seen() == ["a"]
        assert (await talk.accept("a")).status == "duplicate"

    async def test_dead_letters_are_bounded(self, talk: Talk) -> None:
        """Dead letters have a limit; the oldest gives way, and the answer says so."""
        talk.under(dead_limit=2)
        await talk.bury("a")
        await talk.bury("b")
        answer = await talk.settle(await talk.begin("c"), verdict="dead")
        assert set(answer.dropped) == {Dropped("c", "dead"), Dropped("a", "dead-limit")}
        assert [letter.event_id for letter in (await talk.document()).dead] == ["b", "c"]

    async def test_a_dead_letter_may_be_tried_again(self, talk: Talk) -> None:
        """A dead letter that is put back waits in its old place, with its attempts forgotten, and is dead no
        more.
        """
        seq = await talk.bury("a")
        await talk.begin("running")
        await talk.accept("b")
        answer = await talk.retry_dead(seq)
        assert (answer.status, answer.seq, answer.depth) == ("queued", seq, 2)
        assert await talk.waiting() == ["a", "b"]
        document = await talk.document()
        assert document.dead == ()
        assert [entry.attempts for entry in document.inbox if entry.event_id == "a"] == [0]

    async def test_a_dead_letter_tried_again_is_due(self, talk: Talk) -> None:
        """A dead letter that is put back into a free conversation is due at once."""
        answer = await talk.retry_dead(await talk.bury("a"))
        assert answer.wake_at is not None
        assert answer.wake_at <= talk.clock()
        turn = await talk.taken()
        assert [(entry.event_id, entry.attempts) for entry in turn.entries] == [("a", 1)]
        await talk.commit(turn, setting(a=1))
        assert await talk.seen() == ["a"]

    async def test_a_dead_letter_may_be_dropped(self, talk: Talk) -> None:
        """A dead letter that is thrown away is gone, and its id stays seen."""
        first, second = await talk.bury("a"), await talk.bury("b")
        answer = await talk.drop_dead(first)
        assert (answer.status, answer.seq) == ("dropped", first)
        assert [letter.seq for letter in (await talk.document()).dead] == [second]
        assert (await talk.accept("a")).status == "duplicate"

    async def test_an_unknown_dead_letter_is_nothing(self, talk: Talk) -> None:
        """To retry or drop a dead letter that is not there is ``nothing`` and changes nothing."""
        seq = await talk.bury("a")
        before = await talk.view()
        assert (await talk.retry_dead(seq + 1)).status == "nothing"
        assert (await talk.drop_dead(seq + 1)).status == "nothing"
        assert await talk.view() == before

    # -------------------------------------------------------------------------------------------- renewing

    async def test_a_lease_can_be_renewed(self, talk: Talk) -> None:
        """A renewal pushes the deadline to the time plus the length of the lease."""
        grant = await talk.begin("a")
        talk.clock.advance(20)
        assert await talk.renew(grant) == [True]
        talk.clock.advance(29.75)
        assert (await talk.accept("b", Reject())).status == "busy"
        talk.clock.advance(0.25)
        assert (await talk.accept("b", Reject())).grant is not None

    async def test_a_renewal_changes_nothing_else(self, talk: Talk) -> None:
        """A renewal keeps epoch, owner, inbox and record."""
        grant = await talk.busy("a")
        before = await talk.document()
        talk.clock.advance(5)
        await talk.renew(grant)
        after = await talk.document()
        assert (after.epoch, after.inbox, after.record) == (before.epoch, before.inbox, before.record)
        assert before.lease is not None
        assert after.lease == replace(before.lease, deadline=talk.clock() + 30)

    async def test_many_leases_are_renewed_together(self, talk: Talk) -> None:
        """Many leases are renewed in one call; the answer says for each whether it still holds."""
        talks = [Talk(talk.store, talk.clock, (n,)) for n in range(5)]
        grants = [await one.begin("a") for one in talks]
        talk.clock.advance(30)
        for n in (1, 3):
            await talks[n].taken()
        claims = [(one.address, grant.claim) for one, grant in zip(talks, grants, strict=True)]
        assert await talk.store.renew(claims, talk.terms) == [True, False, True, False, True]
        assert await talk.store.renew([], talk.terms) == []

    async def test_a_late_renewal_is_good_if_nobody_came(self, talk: Talk) -> None:
        """A lease past its deadline that nobody took over can be renewed."""
        grant = await talk.begin("a")
        talk.clock.advance(100)
        assert await talk.renew(grant) == [True]
        assert (await talk.accept("b", Reject())).status == "busy"

    async def test_a_lost_lease_cannot_be_renewed(self, talk: Talk) -> None:
        """A lease that was taken over, freed or given back cannot be renewed, and the attempt changes
        nothing.
        """
        grant = await talk.begin("a")
        talk.clock.advance(30)
        taken = await talk.taken()
        before = await talk.view()
        assert await talk.renew(grant) == [False]
        assert await talk.view() == before
        await talk.force_release()
        assert await talk.renew(taken) == [False]
        again = await talk.taken()
        await talk.release(again)
        assert await talk.renew(again) == [False]

    async def test_a_lone_turn_can_be_renewed(self, talk: Talk) -> None:
        """A concurrent turn can be renewed like any other, until it is taken over."""
        grant = await talk.begin("a", Concurrent(1))
        talk.clock.advance(20)
        assert await talk.renew(grant) == [True]
        talk.clock.advance(29.75)
        assert (await talk.accept("b", Concurrent(1))).status == "busy"
        talk.clock.advance(0.25)
        await talk.taken()
        assert await talk.renew(grant) == [False]

    # ------------------------------------------------------------------------------------------- releasing

    async def test_a_turn_can_be_given_back(self, talk: Talk) -> None:
        """A turn that is given back unrun waits again in its place, and the attempt is not counted."""
        grant = await talk.busy("a")
        answer = await talk.release(grant)
        assert (answer.status, answer.grant, answer.depth) == ("released", None, 2)
        assert await talk.waiting() == ["running", "a"]
        assert (await talk.document()).lease is None
        turn = await talk.taken()
        assert [(entry.event_id, entry.attempts) for entry in turn.entries] == [("running", 1)]

    async def test_what_was_given_back_cannot_be_committed(self, talk: Talk) -> None:
        """A turn that was given back can commit nothing any more."""
        grant = await talk.begin("a")
        await talk.release(grant)
        await talk.fenced(grant)
        assert await talk.seen() == []

    async def test_a_stale_holder_frees_nothing(self, talk: Talk) -> None:
        """A stale holder's release does not free the lease of the new one."""
        grant = await talk.begin("a")
        talk.clock.advance(30)
        taken = await talk.taken()
        before = await talk.view()
        assert (await talk.release(grant)).status == "fenced"
        assert await talk.view() == before
        await talk.commit(taken, setting(a=1))

    async def test_a_lone_turn_can_be_given_back(self, talk: Talk) -> None:
        """A concurrent turn that is given back waits, and a lease beside it is left alone."""
        lone = await talk.begin("a", Concurrent())
        grant = await talk.begin("b")
        assert (await talk.release(lone)).status == "released"
        assert await talk.waiting() == ["a"]
        await talk.fenced(lone)
        assert ids(await talk.commit(grant)) == ["a"]

    async def test_a_stuck_conversation_can_be_freed(self, talk: Talk) -> None:
        """``force_release`` frees a conversation whoever holds it; what was running waits again, before the
        rest.
        """
        grant = await talk.busy("a")
        answer = await talk.force_release()
        assert (answer.status, answer.grant) == ("released", None)
        assert await talk.waiting() == ["running", "a"]
        assert (await talk.document()).lease is None
        assert (await talk.document()).epoch > grant.epoch

    async def test_who_was_freed_commits_and_drains_nothing(self, talk: Talk) -> None:
        """After ``force_release`` the old holder commits nothing, is handed nothing and frees nothing."""
        grant = await talk.busy("a")
        await talk.force_release()
        await talk.fenced(grant)
        turn = await talk.taken()
        await talk.fenced(grant)
        assert (await talk.release(grant)).status == "fenced"
        assert ids(await talk.commit(turn)) == ["a"]

    async def test_a_free_conversation_needs_no_freeing(self, talk: Talk) -> None:
        """``force_release`` of a free conversation is ``nothing`` and changes nothing."""
        assert (await talk.force_release()).status == "nothing"
        await talk.commit(await talk.begin("a"))
        before = await talk.view()
        assert (await talk.force_release()).status == "nothing"
        assert await talk.view() == before

    async def test_lone_turns_are_freed_too(self, talk: Talk) -> None:
        """``force_release`` fences concurrent turns too; what they ran waits again."""
        grants = [await talk.begin(name, Concurrent()) for name in "ab"]
        assert (await talk.force_release()).status == "released"
        for grant in grants:
            await talk.fenced(grant)
        assert await talk.waiting() == ["a", "b"]

    # ------------------------------------------------------------------------------------- taking the lease

    async def test_the_lease_can_be_taken_without_an_event(self, talk: Talk) -> None:
        """``acquire`` takes the lease of a free conversation for a turn without an event, and it commits
        like any.
        """
        await talk.store.set_data(BOT, KEY, {"a": 1})
        grant = await talk.acquired()
        assert grant.entries == ()
        assert grant.deadline == talk.clock() + 30
        assert grant.record is not None
        assert (await talk.accept("b")).status == "queued"
        assert ids(await talk.commit(grant, setting(b=2))) == ["b"]
        assert await talk.data() == {"a": 1, "b": 2}

    async def test_a_busy_lease_cannot_be_taken(self, talk: Talk) -> None:
        """``acquire`` of a busy conversation is ``busy`` and changes nothing; past its deadline it is not."""
        grant = await talk.begin("a")
        before = await talk.view()
        answer = await talk.acquire()
        assert (answer.status, answer.grant) == ("busy", None)
        assert await talk.view() == before
        talk.clock.advance(30)
        await talk.acquired()
        await talk.fenced(grant)

    async def test_one_of_many_takes_the_lease(self, talk: Talk) -> None:
        """Of many that take the lease at the same moment one gets it."""
        answers = await asyncio.gather(*[talk.acquire(owner=f"w{n}") for n in range(20)])
        assert sorted(answer.status for answer in answers) == ["busy"] * 19 + ["granted"]

    async def test_what_was_left_is_handed_on_by_an_eventless_turn(self, talk: Talk) -> None:
        """What a dead lease left waits while the lease is taken without an event, and is handed on at its
        end.
        """
        await talk.busy("a")
        talk.clock.advance(30)
        grant = await talk.acquired()
        assert await talk.waiting() == ["running", "a"]
        assert ids(await talk.commit(grant)) == ["running"]

    async def test_a_dead_lease_can_be_taken_over(self, talk: Talk) -> None:
        """``take_over`` of a conversation with a dead lease grants what was left, oldest first, and fences
        the old.
        """
        grant = await talk.busy("a")
        talk.clock.advance(30)
        taken = await talk.taken()
        assert ids(taken) == ["running"]
        assert taken.epoch > grant.epoch
        assert taken.deadline == talk.clock() + 30
        assert [entry.attempts for entry in taken.entries] == [2]
        await talk.fenced(grant)
        assert ids(await talk.commit(taken)) == ["a"]

    async def test_a_living_lease_is_not_taken_over(self, talk: Talk) -> None:
        """``take_over`` of a busy conversation is ``nothing`` and changes nothing."""
        await talk.busy("a")
        before = await talk.view()
        talk.clock.advance(29.75)
        answer = await talk.take_over()
        assert (answer.status, answer.grant) == ("nothing", None)
        assert await talk.view() == before

    async def test_nothing_is_taken_over_where_nothing_is_due(self, talk: Talk) -> None:
        """``take_over`` of a conversation with nothing due is ``nothing``, and leaves none behind that was
        not there.
        """
        assert (await talk.take_over()).status == "nothing"
        assert not await talk.is_filed("all")
        await talk.settle(await talk.begin("a"), verdict="retry", delay=60)
        before = await talk.view()
        assert (await talk.take_over()).status == "nothing"
        assert await talk.view() == before

    async def test_one_of_many_takes_over(self, talk: Talk) -> None:
        """Of many that take over at the same moment one gets the turn."""
        await talk.begin("a")
        talk.clock.advance(30)
        answers = await asyncio.gather(*[talk.take_over(owner=f"w{n}") for n in range(20)])
        assert sorted(answer.status for answer in answers) == ["granted"] + ["nothing"] * 19

    async def test_a_dead_lease_with_nothing_due_is_let_go(self, talk: Talk) -> None:
        """``take_over`` lets a dead lease go also when nothing is due, so that nobody has to look again."""
        grant = await talk.acquired()
        talk.clock.advance(30)
        assert await talk.is_filed("due")
        answer = await talk.take_over()
        assert (answer.status, answer.wake_at) == ("nothing", None)
        assert not await talk.is_filed("due")
        await talk.fenced(grant)

    # ------------------------------------------------------------------------------------------ lone turns

    async def test_a_lone_turn_commits(self, talk: Talk) -> None:
        """A concurrent turn commits its patch and acknowledges its event, beside a lease and without one."""
        first = await talk.begin("a", Concurrent())
        grant = await talk.begin("running")
        second = await talk.begin("b", Concurrent())
        for turn, name in ((first, "a"), (second, "b")):
            answer = await talk.settle(turn, setting(**{name: 1}))
            assert (answer.status, answer.grant) == ("committed", None)
        await talk.commit(grant, setting(running=1))
        assert await talk.data() == {"a": 1, "b": 1, "running": 1}
        assert await talk.seen() == ["a", "b", "running"]

    async def test_a_lone_turn_commits_once(self, talk: Talk) -> None:
        """A concurrent turn that was committed cannot be committed again."""
        grant = await talk.begin("a", Concurrent())
        await talk.begin("b", Concurrent())
        await talk.commit(grant)
        await talk.fenced(grant)

    async def test_a_late_lone_turn_commits(self, talk: Talk) -> None:
        """A concurrent turn past its deadline that nobody took over may still commit."""
        grant = await talk.begin("a", Concurrent())
        talk.clock.advance(3000)
        await talk.commit(grant, setting(a=1))
        assert await talk.data() == {"a": 1}

    async def test_a_dead_lone_turn_is_taken_over(self, talk: Talk) -> None:
        """A concurrent turn past its deadline is taken over, counted, and can commit nothing any more."""
        old = await talk.begin("a", Concurrent())
        talk.clock.advance(29.75)
        assert (await talk.take_over()).status == "nothing"
        talk.clock.advance(0.25)
        taken = await talk.taken()
        assert [(entry.event_id, entry.attempts) for entry in taken.entries] == [("a", 2)]
        await talk.fenced(old)
        await talk.commit(taken)
        assert await talk.seen() == ["a"]

    async def test_a_lone_turn_may_fail(self, talk: Talk) -> None:
        """A concurrent turn that failed is tried again with the lease, or becomes a dead letter."""
        first, second = [await talk.begin(name, Concurrent()) for name in "ab"]
        answer = await talk.settle(first, verdict="retry", delay=10)
        assert (answer.status, answer.grant) == ("committed", None)
        assert (await talk.settle(second, verdict="dead")).dropped == (Dropped("b", "dead"),)
        talk.clock.advance(10)
        turn = await talk.taken()
        assert (ids(turn), turn.lone) == (["a"], False)

    # --------------------------------------------------------------------------------------------- expiring

    async def expire(self, talk: Talk) -> None:
        """Tidy all of the bot's conversations."""
        for _ in range(3):
            await talk.store.expire(BOT, 100, talk.terms)

    async def test_expire_removes_what_is_over(self, talk: Talk) -> None:
        """``expire`` removes an expired record, old ids of the seen window and a dead lease with nothing
        behind it.
        """
        talk.under(record_ttl=100.0, seen_age=100.0)
        await talk.commit(await talk.begin("a"), setting(a=1))
        await talk.acquired()
        talk.clock.advance(100)
        await self.expire(talk)
        document = await talk.document()
        assert (document.record, document.seen, document.lease) == (None, {}, None)

    async def test_expire_keeps_what_is_not(self, talk: Talk) -> None:
        """``expire`` keeps living records, ids and leases, everything in the inbox and the dead letters."""
        talk.under(record_ttl=100.0, seen_age=100.0)
        await talk.commit(await talk.begin("a"), setting(a=1))
        await talk.bury("dead")
        await talk.busy("b")
        talk.clock.advance(29.75)
        before = await talk.view()
        await self.expire(talk)
        assert await talk.view() == before
        talk.clock.advance(60)
        await self.expire(talk)
        assert await talk.view() == before

    async def test_who_is_late_after_expire_is_fenced(self, talk: Talk) -> None:
        """Whoever held a lease that ``expire`` removed can commit nothing any more."""
        grant = await talk.acquired()
        talk.clock.advance(30)
        await self.expire(talk)
        answer = await talk.settle(grant, setting(late=1))
        assert answer.status == "fenced"
        assert await talk.record() is None

    async def test_epochs_outlive_expire(self, talk: Talk) -> None:
        """While a late holder is to be feared, the epoch outlives everything that ``expire`` removes."""
        talk.under(seen_age=10.0, tombstone=1000.0)
        grant = await talk.begin("a")
        await talk.commit(grant)
        talk.clock.advance(900)
        await self.expire(talk)
        assert (await talk.begin("b")).epoch > grant.epoch

    # -------------------------------------------------------------------------------------------- forgetting

    async def test_forget_erases_everything(self, talk: Talk) -> None:
        """``forget`` erases record, inbox, seen window and dead letters."""
        await talk.bury("dead")
        await talk.busy("a")
        await talk.store.set_state(BOT, KEY, Record("signup", "name", {"a": 1}))
        await talk.store.forget(talk.address)
        document = await talk.document()
        assert (document.record, document.lease, document.inbox) == (None, None, ())
        assert (document.seen, document.dead) == ({}, ())
        assert [await talk.is_filed(kind) for kind in ("record", "pending", "lease", "dead", "due")] == [
            False
        ] * 5

    async def test_who_runs_what_was_forgotten_is_fenced(self, talk: Talk) -> None:
        """Whoever ran a conversation that was forgotten cannot bring it back."""
        grant = await talk.busy("a")
        lone = await talk.begin("b", Concurrent())
        await talk.store.forget(talk.address)
        await talk.fenced(grant)
        await talk.fenced(lone)
        assert await talk.renew(grant, lone) == [False, False]

    async def test_a_forgotten_conversation_starts_afresh(self, talk: Talk) -> None:
        """After ``forget`` the same event is new again, under an epoch and a number above all before."""
        old = await talk.begin("a")
        await talk.commit(old)
        await talk.store.forget(talk.address)
        new = await talk.begin("a")
        assert new.epoch > old.epoch
        assert new.entries[0].seq > old.entries[0].seq
        assert new.record is None

    async def test_forget_is_of_one_conversation(self, talk: Talk) -> None:
        """``forget`` touches no other conversation, and forgetting nothing is no error."""
        other = Talk(talk.store, talk.clock, (7, 8))
        await other.busy("a")
        before = await other.view()
        await talk.store.forget(talk.address)
        assert await other.view() == before
        assert not await talk.is_filed("all")
