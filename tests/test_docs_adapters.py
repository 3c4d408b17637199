"""What the pages about sync code, webhooks and moving show is run, compiled or parsed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hitherto.cli import parser

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("sync.md", "webhooks.md", "moving.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_program_is_python(page):
    for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        compile(code, page, "exec")


def test_the_program_of_sync_runs(tmp_path):
    code = re.search(r"<!-- program.*?-->\n```python\n(.*?)```", (DOCS / "sync.md").read_text(), re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["committed", "committed", "duplicate", "done {'name': 'Ann'}"]


def test_every_command_line_is_one():
    lines = re.findall(r"^    hitherto (.*)$", (DOCS / "moving.md").read_text(), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        assert parser().parse_args(shlex.split(line)).what[0] in line


def test_every_option_that_is_named_is_there():
    known = {option for action in _import() for option in action.option_strings}
    text = (DOCS / "moving.md").read_text()
    assert set(re.findall(r"(--[a-z][a-z-]+)", text)) <= known


def _import():
    commands = next(action for action in parser()._actions if action.choices)
    return commands.choices["import"]._actions
