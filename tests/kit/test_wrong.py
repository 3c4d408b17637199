"""Every clause of the kit catches a store that is wrong in what the clause promises, and one of its own."""

from __future__ import annotations

from collections import Counter

import pytest

from hitherto.chatstate import ChatState
from hitherto.stores.memory import MemoryStore
from hitherto.testing import ChatStateContract, FSMStorageContract, TurnContract, clauses
from hitherto.testing.kit import BOT
from kit.matrix import CLAUSES, FOR, Whole, catches
from kit.wrong import WRONG, Bent, Plain, Shared, Wrong, tried
from kit.wrong_records import Storage


def of(clause):
    """The wrong stores that this clause has to catch."""
    return [wrong for wrong in WRONG if clause in wrong.clauses]


@pytest.mark.parametrize("clause", CLAUSES)
async def test_the_clause_catches(clause):
    missed = [wrong.name for wrong in of(clause) if not await catches(clause, wrong)]
    assert not missed
    assert of(clause), "it has no wrong store"


def own_wrong_stores(clauses_):
    """As many clauses as can have a wrong store of their own, each with it."""
    owner = {}

    def find(clause, tried):
        for wrong in of(clause):
            if wrong.name not in tried:
                tried.add(wrong.name)
                if wrong.name not in owner or find(owner[wrong.name], tried):
                    owner[wrong.name] = clause
                    return True
        return False

    without = [clause for clause in clauses_ if not find(clause, set())]
    return owner, without


def test_every_clause_has_a_wrong_store_of_its_own():
    owner, without = own_wrong_stores(CLAUSES)
    assert not without
    assert len(owner) == len(CLAUSES)


def test_every_wrong_store_is_for_a_clause_that_there_is():
    for wrong in WRONG:
        assert wrong.clauses, wrong.name
        assert set(wrong.clauses) <= FOR[wrong.what], wrong.name
    assert [name for name, times in Counter(wrong.name for wrong in WRONG).items() if times > 1] == []


HONEST = {
    "shared": Wrong("Shared", lambda clock: Shared(clock=clock), ()),
    "plain": Wrong("Plain", lambda clock: Plain(clock=clock), ()),
    "bent": Wrong("Bent", lambda clock: Bent(clock=clock), ()),
    "storage": Wrong("Storage", lambda clock: Storage(), (), "storage"),
    "chat": Wrong("ChatState", lambda clock: ChatState(MemoryStore(clock=clock), BOT), (), "chat"),
}


@pytest.mark.parametrize("honest", HONEST.values(), ids=HONEST)
async def test_what_the_wrong_stores_are_made_of_is_honest(honest):
    for clause in sorted(FOR[honest.what]):
        await tried(clause, honest.make, honest.what, Whole)


def test_there_are_as_many_clauses_as_were_promised():
    assert len(clauses(FSMStorageContract)) + len(clauses(ChatStateContract)) >= 90
    assert len(clauses(TurnContract)) >= 60
    assert all(clauses(Whole).values()), "each is a sentence"
