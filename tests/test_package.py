"""The face of the package: what the door shows, what importing it costs, and the proportions of the house."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hitherto

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hitherto"
MODULES = sorted(SOURCE.rglob("*.py"))

PUBLIC = (
    "Flow State Record Keeper Turn Outcome "
    "ChatUser User Chat ChatTopic ChatTopicUser "
    "Reject Queue Debounce Burst Concurrent "
    "open_store MemoryStore "
    "ChatState Snapshot normalize_snapshot "
    "HithertoError InvalidTransition UnknownFlow UnknownState StoreError Fenced DataError"
)

ADAPTERS = ("aiogram", "ptb", "asgi", "telebot", "slack", "discord", "sync")

LOADED = """
import sys
before = set(sys.modules)
{statement}
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One isolated interpreter: no PYTHONPATH, no current directory on the path."""
    return subprocess.run(
        [sys.executable, "-I", *arguments], capture_output=True, text=True, check=True, timeout=60
    )


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# --- the door ---------------------------------------------------------------------------------------------


def test_all_is_exactly_the_promised_names() -> None:
    assert set(hitherto.__all__) == set(PUBLIC.split())
    assert len(hitherto.__all__) == len(set(hitherto.__all__))


def test_every_name_of_all_is_there_and_listed() -> None:
    assert set(hitherto.__all__) <= set(dir(hitherto))
    for name in hitherto.__all__:
        assert getattr(hitherto, name).__name__ == name


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        hitherto.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_the_distributions() -> None:
    assert importlib.metadata.version("hitherto") == hitherto.__version__


def test_the_changelog_knows_the_version() -> None:
    assert f"## [{hitherto.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()


def test_every_entry_point_leads_to_something() -> None:
    stores = importlib.metadata.entry_points(group="hitherto.stores")
    assert {"memory", "sqlite", "redis", "rediss", "valkey", "postgresql", "postgres"} <= stores.names
    for point in stores:
        assert callable(point.load().from_url), point.name
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="hitherto")
    assert callable(script.load())


# --- what importing costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["import hitherto", "from hitherto import *"])
def test_importing_loads_nothing_but_the_standard_library_and_msgspec(statement: str) -> None:
    loaded = json.loads(python("-c", LOADED.format(statement=statement)).stdout)
    # msgspec takes typing_extensions along where another distribution has brought it
    its_own = json.loads(python("-c", LOADED.format(statement="import msgspec._utils")).stdout)
    allowed = sys.stdlib_module_names | {"hitherto", "msgspec"} | set(its_own)
    assert "hitherto" in loaded
    assert [name for name in loaded if name.partition(".")[0] not in allowed] == []


def test_importing_loads_no_store_driver_and_no_command_line() -> None:
    loaded = json.loads(python("-c", LOADED.format(statement="from hitherto import *")).stdout)
    heavy = {"sqlite3", "argparse", "hitherto.cli", "hitherto.testing", "hitherto.stores.sqlite"}
    assert heavy.isdisjoint(loaded)


def import_time(statement: str) -> int:
    """Microseconds the statement's imports take, from -X importtime; nested ones count in their parents."""
    total = 0
    for line in python("-X", "importtime", "-c", statement).stderr.splitlines():
        match = re.match(r"import time:\s*\d+ \|\s*(\d+) \| (\S+)$", line)
        if match and match[2].partition(".")[0] in {"msgspec", "asyncio", "hitherto"}:
            total += int(match[1])
    return total


@pytest.mark.parametrize("statement", ["import hitherto", "from hitherto import *"])
def test_importing_costs_under_one_and_a_half_times_its_foundations(statement: str) -> None:
    """The least of many rounds: on a busy machine it takes more of them until both were left in peace."""
    foundation, ours = import_time("import msgspec, asyncio"), import_time(statement)
    for number in range(60):
        foundation = min(foundation, import_time("import msgspec, asyncio"))
        ours = min(ours, import_time(statement))
        if number >= 8 and ours < 1.5 * foundation:
            break
    assert foundation > 0
    assert ours < 1.5 * foundation, f"{ours} us beside {foundation} us"


# --- the house --------------------------------------------------------------------------------------------


NAMES = {module_name(path) for path in MODULES}


class AtRunTime(ast.NodeTransformer):
    """Leaves out what is imported for the type checkers only."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def imports(path: Path) -> Iterator[str]:
    """The modules of the house that this one imports when it runs, wherever in the file it does."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(AtRunTime().visit(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                module = f"{base}.{alias.name}"
                yield module if module in NAMES else base


def find_cycle(doors: dict[str, set[str]]) -> list[str]:
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for other in sorted(doors[name]):
            if cycle := visit(other, [*trail, name]):
                return cycle
        done.add(name)
        return []

    return next((cycle for name in sorted(doors) if (cycle := visit(name, []))), [])


def test_the_cycle_finder_finds_one() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_import_cycles() -> None:
    doors = {module_name(path): set(imports(path)) & NAMES - {module_name(path)} for path in MODULES}
    assert find_cycle(doors) == []


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_room_is_in_proportion(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    adapter = path.parent == SOURCE and path.stem in ADAPTERS
    assert ast.get_docstring(tree), "a module says what it is for"
    assert path.stem not in {"utils", "util", "helpers", "misc"}
    assert len(text.splitlines()) <= (350 if adapter else 900)
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions(tree) if f.end_lineno is not None}
    assert {name: lines for name, lines in long.items() if lines > 60} == {}


# --- the repository ---------------------------------------------------------------------------------------


def repository_files() -> Iterator[Path]:
    made = {".venv", ".git", "build", "dist", "site", "artifacts", "node_modules", "__pycache__"}
    for path in ROOT.iterdir():
        if path.name in made or (path.name.startswith(".") and path.name not in {".ci", ".gitignore"}):
            continue
        nested = path.rglob("*") if path.is_dir() else [path]
        yield from (file for file in nested if file.is_file() and made.isdisjoint(file.parts))


ADDRESS = re.compile(
    r"https?://[^\s\"']*(?:pypi|npmjs|/simple\b)|(?:extra-)?index-" + r"url|find-" + r"links|/work/" + r"main"
)


def test_the_repository_names_no_registry_and_no_machine_and_locks_nothing() -> None:
    found = []
    for path in repository_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in ADDRESS.finditer(text)]
        if path.name in {"uv.lock", "poetry.lock", "package-lock.json", "yarn.lock"}:
            found.append(f"{path.relative_to(ROOT)} is a lock file")
    assert found == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
