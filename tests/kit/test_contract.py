"""What a store author meets: contracts under both async plugins, abilities, nothing switched off."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hitherto
from hitherto.testing import StoreContract, clauses
from hitherto.testing.kit import ABILITIES, needs

MODULE = """
import pytest
from hitherto.stores.memory import MemoryStore
from hitherto.testing import StoreContract
{top}
class TestMine(StoreContract):
    abilities = {{"reopens"}}

    @{fixture}
    async def store(self, clock):
        async with MemoryStore(clock=clock) as store:
            yield store
{more}
"""
BACKEND = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

"""
ASYNCIO = "import pytest_asyncio\npytestmark = pytest.mark.asyncio\n"
ANYIO = f"pytestmark = pytest.mark.anyio\n{BACKEND}"
LOOPS = ["-o", "asyncio_default_fixture_loop_scope=function"]
AUTO = ["-o", "asyncio_mode=auto", *LOOPS]
STRICT = ["-o", "asyncio_mode=strict", *LOOPS]
WAYS = {
    "asyncio-auto": ("", "pytest.fixture", ["-p", "no:anyio", *AUTO]),
    "asyncio-strict": (ASYNCIO, "pytest_asyncio.fixture", ["-p", "no:anyio", *STRICT]),
    "anyio": (ANYIO, "pytest.fixture", ["-p", "no:asyncio"]),
    "anyio-beside-asyncio": (ANYIO, "pytest.fixture", [*STRICT]),
}


BOTH = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


class Mine(StoreContract):
    """What the module's class has to run."""

    abilities = frozenset({"reopens"})


def run(folder: Path, module: str, *arguments: str) -> tuple[str, dict[str, int]]:
    """What pytest prints for a module in a folder of its own, and its closing line as counts."""
    (folder / "test_mine.py").write_text(module)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    home = {**os.environ, "PYTHONPATH": str(Path(hitherto.__file__).parents[1])}
    said = subprocess.run(command, cwd=folder, text=True, timeout=100, env=home, **BOTH).stdout
    counts = re.findall(r"(\d+) (passed|failed|error|skipped|warning|deselected)", said.splitlines()[-1])
    assert "unrecognized" not in said
    return said, {word: int(number) for number, word in counts}


@pytest.mark.parametrize(("top", "fixture", "arguments"), WAYS.values(), ids=WAYS)
def test_every_clause_runs_under(tmp_path, top, fixture, arguments):
    said, counts = run(tmp_path, MODULE.format(top=top, fixture=fixture, more=""), *arguments)
    assert counts == {"passed": len(clauses(Mine))}, said[-3000:]


OFF = {
    "set to none": "test_a_turn_commits_once = None",
    "replaced": "async def test_a_turn_commits_once(self): pass",
    "skipped": "@pytest.mark.skip\n    async def test_a_turn_commits_once(self): pass",
}


@pytest.mark.parametrize("how", OFF.values(), ids=OFF)
def test_a_clause_that_is_switched_off_fails_the_contract(tmp_path, how):
    module = MODULE.format(top="", fixture="pytest.fixture", more=f"    {how}")
    said, counts = run(tmp_path, module, *AUTO, "-k", "whole or commits_once or opening")
    assert counts["failed"] == 1
    assert "TestMine switches off or replaces test_a_turn_commits_once" in said


def test_a_store_that_lacks_a_required_method_fails_and_skips_nothing(tmp_path):
    module = MODULE.format(top="", fixture="pytest.fixture", more="").replace("MemoryStore(", "Lame(")
    lame = "class Lame(MemoryStore):\n    settle = None\n\nclass TestMine"
    module = module.replace("class TestMine", lame)
    _, counts = run(tmp_path, module, "--tb=line", *AUTO)
    assert sum(counts.values()) == len(clauses(Mine))
    assert counts["failed"] > 60
    assert "skipped" not in counts


def test_a_declared_ability_needs_its_fixture(tmp_path):
    module = MODULE.format(top="", fixture="pytest.fixture", more="").replace('{"reopens"}', '{"shared"}')
    said, counts = run(tmp_path, module, *AUTO, "-k", "test_another")
    assert "fixture 'another' not found" in said
    assert counts.keys() == {"error", "deselected"}


def test_a_class_without_a_store_is_told_what_to_give(tmp_path):
    module = "from hitherto.testing import StoreContract\nclass TestMine(StoreContract): pass\n"
    said, counts = run(tmp_path, module, "--tb=line", *AUTO)
    assert "give the class a fixture `store`" in said
    assert counts["error"] > 300
    assert "skipped" not in counts


def test_an_unknown_ability_is_an_error_that_lists_what_there_is():
    with pytest.raises(TypeError, match=r"no ability is called flies .*reopens: .*shared: "):
        type("Flying", (StoreContract,), {"abilities": {"flies"}})
    with pytest.raises(ValueError, match="the abilities are reopens, shared"):
        needs("flies")


def test_clauses_of_an_ability_are_there_when_it_is_declared():
    def with_(*abilities):
        return set(clauses(type("Some", (StoreContract,), {"abilities": set(abilities)})))

    for ability in ABILITIES:
        assert with_(ability) > with_()
    assert with_(*ABILITIES) - with_() == set().union(*[with_(each) - with_() for each in ABILITIES])


async def test_a_subclass_may_declare_more():
    class Less(StoreContract):
        abilities = frozenset({"reopens"})

    class More(Less):
        abilities = frozenset({"reopens", "shared"})

    assert More.test_another_fences is StoreContract.test_another_fences
    assert Less.test_another_fences is None
    await More().test_the_contract_is_whole()


def test_the_toy_store_is_small_and_has_the_five_primitives_only():
    text = (Path(__file__).parents[1] / "toy_store.py").read_text()
    assert len(text.splitlines()) < 60
    assert set(re.findall(r"def (\w+)", text)) == {"open", "close", "load", "swap", "scan"}
