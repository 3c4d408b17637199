"""Every wrong variant of the protocol is caught, each by the same thing in every run."""

from __future__ import annotations

import pytest

from explore_protocol import Explorer, Setting, Violation
from hitherto import protocol
from kit.matrix import catches
from kit.wrong import WRONG
from spoiled_protocols import BY_THE_KIT, SPOILED, TwoSteps

SETTINGS = list(dict.fromkeys(setting for _, setting, _ in SPOILED.values()))
STORES = {wrong.name: wrong for wrong in WRONG}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_protocol_is_caught_by_the_explorer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, setting, kind = SPOILED[name]
    spoil(lambda attribute, value: monkeypatch.setattr(protocol, attribute, value))
    with pytest.raises(Violation, match=kind):
        Explorer(setting, canonical=False).run(limit=200_000)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_protocol_as_it_is_keeps_its_promise_there(setting: Setting) -> None:
    assert Explorer(setting).run().at_rest


@pytest.mark.parametrize("done_first", [True, False])
def test_a_commit_in_two_steps_is_caught_by_the_explorer(done_first: bool) -> None:
    with pytest.raises(Violation):
        TwoSteps(done_first).run(limit=200_000)


@pytest.mark.parametrize("name", BY_THE_KIT)
async def test_a_wrong_store_is_caught_by_its_clauses(name: str) -> None:
    wrong = STORES[BY_THE_KIT[name]]
    assert wrong.clauses
    assert [clause for clause in wrong.clauses if not await catches(clause, wrong)] == []


def test_there_are_as_many_as_were_promised() -> None:
    assert len(SPOILED) + 2 >= 27
    assert len(BY_THE_KIT) == len(set(BY_THE_KIT.values())) >= 28
    assert not SPOILED.keys() & BY_THE_KIT.keys()
