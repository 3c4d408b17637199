"""The README's program is run as it stands there, and does what the README says of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import report

README = (Path(__file__).parents[1] / "README.md").read_text()
PROGRAM = re.search(r"<!-- program.*?-->\n```python\n(.*?)```", README, re.DOTALL)


def program() -> str:
    assert PROGRAM, "the README has its program"
    return PROGRAM[1]


def run(directory: Path) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", program()],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_the_program_is_at_most_25_lines() -> None:
    assert 10 < sum(1 for line in program().splitlines() if line.strip()) <= 25


def test_the_program_handles_each_update_once_and_remembers_it(tmp_path: Path) -> None:
    assert run(tmp_path) == [
        "/start -> ask_name {}",
        "Ann -> ask_email {'name': 'Ann'}",
        "ann@example.org -> done {'name': 'Ann', 'email': 'ann@example.org'}",
    ]
    assert run(tmp_path) == []


def test_the_figures_are_those_of_the_benchmark() -> None:
    found = json.loads(report.RESULTS.read_text())
    assert report.filled(README, found) == README
    assert report.page(found) == (report.RESULTS.parent / "benchmarks.md").read_text()


def test_links_into_the_repository_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (Path(__file__).parents[1] / link).exists()] == []
