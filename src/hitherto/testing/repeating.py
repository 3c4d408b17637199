"""The clauses of the operation id: repeated after a lost reply, it answers what it answered first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar

import pytest

from hitherto.overlap import Burst, Concurrent, Debounce, Queue, Reject
from hitherto.protocol import Answer
from hitherto.stores.base import Store
from hitherto.testing.clock import ManualClock
from hitherto.testing.kit import Contract, Talk, ids, setting


class RepeatContract(Contract):
    """What is promised of every mutating operation that is repeated with the same id."""

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

    async def repeated(self, talk: Talk, operation: Callable[[], Awaitable[Answer]]) -> Answer:
        """Do it, do it again a little later, and assert that this answered alike and did nothing."""
        first = await operation()
        before = await talk.view()
        talk.clock.advance(1)
        second = await operation()
        assert (second.status, second.seq, second.grant) == (first.status, first.seq, first.grant)
        assert await talk.view() == before
        return first

    async def test_a_granted_event_repeated(self, talk: Talk) -> None:
        """``accept`` that was granted, repeated, is the same grant again and not a duplicate."""
        answer = await self.repeated(talk, lambda: talk.accept("a", op="1"))
        assert answer.status == "granted"
        assert answer.grant is not None
        await talk.commit(answer.grant)

    async def test_an_event_without_an_id_repeated(self, talk: Talk) -> None:
        """``accept`` of an event without an id, repeated, is one event."""
        await talk.begin("running")
        assert (await self.repeated(talk, lambda: talk.accept(None, op="1"))).status == "queued"
        assert await talk.waiting() == [None]

    async def test_a_queued_event_repeated(self, talk: Talk) -> None:
        """``accept`` that was queued, debounced or joined a burst, repeated, answers so again."""
        await talk.begin("running")
        for name, policy in (("a", Queue()), ("b", Burst()), ("c", Debounce(60)), ("d", Debounce(60))):
            answer = await self.repeated(talk, partial(talk.accept, name, policy, op=f"op-{name}"))
            assert answer.status in ("queued", "debounced")
        assert await talk.waiting() == ["a", "b", "d"]

    async def test_a_dropped_event_repeated(self, talk: Talk) -> None:
        """``accept`` that dropped the oldest or the event itself, repeated, drops no other."""
        await talk.busy("a", "b", "c")
        oldest = await self.repeated(talk, lambda: talk.accept("d", Queue(3, "drop_oldest"), op="1"))
        newest = await self.repeated(talk, lambda: talk.accept("e", Queue(3, "drop_newest"), op="2"))
        assert (oldest.status, newest.status) == ("queued", "dropped")
        assert await talk.waiting() == ["b", "c", "d"]

    async def test_a_lone_event_repeated(self, talk: Talk) -> None:
        """``accept`` of a concurrent event, repeated, is the same turn again and counts once."""
        answer = await self.repeated(talk, lambda: talk.accept("a", Concurrent(2), op="1"))
        assert answer.grant is not None
        assert answer.grant.lone
        await talk.begin("b", Concurrent(2))
        await talk.commit(answer.grant)

    async def test_an_accept_that_took_over_repeated(self, talk: Talk) -> None:
        """``accept`` that was granted leftovers or took them over by a redelivery, repeated, is the same
        grant.
        """
        talk.under(max_attempts=9)
        await talk.busy("a")
        for number, name in enumerate(("b", "running", "a")):
            talk.clock.advance(30)
            answer = await self.repeated(talk, partial(talk.accept, name, op=f"op-{number}"))
            assert ids(answer.grant) == ["running"]

    async def test_a_commit_repeated(self, talk: Talk) -> None:
        """``settle``, repeated, is committed again without being applied again."""
        grant = await talk.begin("a")
        answer = await self.repeated(talk, lambda: talk.settle(grant, setting(a=1), op="1"))
        assert answer.status == "committed"

    async def test_a_commit_repeated_late(self, talk: Talk) -> None:
        """``settle``, repeated after others wrote, does not undo what they wrote."""
        grant = await talk.begin("a")
        await talk.settle(grant, setting(a=1, b=1), op="1")
        await talk.commit(await talk.begin("b"), setting(a=2))
        assert (await talk.settle(grant, setting(a=1, b=1), op="1")).status == "committed"
        assert await talk.data() == {"a": 2, "b": 1}

    async def test_a_commit_that_handed_on_repeated(self, talk: Talk) -> None:
        """``settle`` that handed on the next event, repeated, hands on the same and no further one."""
        grant = await talk.busy("a", "b")
        answer = await self.repeated(talk, lambda: talk.settle(grant, setting(a=1), op="1"))
        assert ids(answer.grant) == ["a"]
        assert answer.grant is not None
        assert ids(await talk.commit(answer.grant)) == ["b"]

    async def test_a_failure_repeated(self, talk: Talk) -> None:
        """``settle`` with a retry or a dead letter, repeated, counts once and buries once."""
        first = await talk.begin("a")
        again = await self.repeated(talk, lambda: talk.settle(first, verdict="retry", op="1"))
        assert again.grant is not None
        assert again.grant.entries[0].attempts == 2
        turn = again.grant
        await self.repeated(talk, lambda: talk.settle(turn, verdict="dead", op="2"))
        assert len((await talk.document()).dead) == 1

    async def test_taking_the_lease_repeated(self, talk: Talk) -> None:
        """``acquire``, repeated, is the same lease again and not busy."""
        answer = await self.repeated(talk, lambda: talk.acquire(op="1"))
        assert answer.status == "granted"
        assert answer.grant is not None
        await talk.commit(answer.grant, setting(a=1))

    async def test_taking_over_repeated(self, talk: Talk) -> None:
        """``take_over``, repeated, is the same grant again, with the attempt counted once."""
        await talk.busy("a")
        talk.clock.advance(30)
        answer = await self.repeated(talk, lambda: talk.take_over(op="1"))
        assert ids(answer.grant) == ["running"]

    async def test_giving_back_repeated(self, talk: Talk) -> None:
        """``release``, repeated, is released again and not fenced."""
        grant = await talk.begin("a")
        answer = await self.repeated(talk, lambda: talk.release(grant, op="1"))
        assert answer.status == "released"

    async def test_giving_back_repeated_late(self, talk: Talk) -> None:
        """``release``, repeated after somebody else took the turn, does not take it away."""
        grant = await talk.begin("a")
        await talk.release(grant, op="1")
        taken = await talk.taken()
        assert (await talk.release(grant, op="1")).status == "released"
        await talk.commit(taken)

    async def test_freeing_repeated(self, talk: Talk) -> None:
        """``force_release``, repeated after somebody else began, does not free the new one's lease."""
        await talk.begin("a")
        answer = await self.repeated(talk, lambda: talk.force_release(op="1"))
        assert answer.status == "released"
        taken = await talk.taken()
        assert (await talk.force_release(op="1")).status == "released"
        await talk.commit(taken)

    async def test_dead_letters_repeated(self, talk: Talk) -> None:
        """``retry_dead`` and ``drop_dead``, repeated, answer as before and not ``nothing``."""
        first, second = await talk.bury("a"), await talk.bury("b")
        retried = await self.repeated(talk, lambda: talk.retry_dead(first, op="1"))
        dropped = await self.repeated(talk, lambda: talk.drop_dead(second, op="2"))
        assert (retried.status, dropped.status) == ("queued", "dropped")

    async def test_a_refusal_is_not_remembered(self, talk: Talk) -> None:
        """An operation that was refused and changed nothing may succeed when it is repeated."""
        grant = await talk.begin("a")
        assert (await talk.accept("b", Reject(), op="1")).status == "busy"
        assert (await talk.acquire(op="2")).status == "busy"
        await talk.commit(grant)
        answer = await talk.accept("b", Reject(), op="1")
        assert answer.status == "granted"
        assert answer.grant is not None
        await talk.commit(answer.grant)
        assert (await talk.acquire(op="2")).status == "granted"

    async def test_a_grant_repeated_after_it_was_lost(self, talk: Talk) -> None:
        """A grant that is repeated after its lease was lost can commit nothing."""
        await talk.accept("a", op="1")
        talk.clock.advance(30)
        taken = await talk.taken()
        again = await talk.accept("a", op="1")
        assert again.status == "granted"
        assert again.grant is not None
        assert ids(again.grant) == []
        await talk.fenced(again.grant)
        await talk.commit(taken)
        assert (await talk.accept("a", op="1")).status == "granted"
        assert (await talk.accept("a", op="other")).status == "duplicate"

    async def test_different_operations_do_not_meet(self, talk: Talk) -> None:
        """Operations with different ids are different, and the same id in another conversation is another."""
        await talk.accept("a", op="1")
        assert (await talk.accept("a", op="2")).status == "duplicate"
        other = Talk(talk.store, talk.clock, (7, 8))
        assert (await other.accept("b", op="1")).status == "granted"
        assert (await talk.accept("b", op="3")).status == "queued"
