"""The programs in the documentation run as they stand there, page by page, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
SAID = {
    "tutorial.md": [
        "| size     | toppings      | initial |       |",
        "duplicate",
        "toppings {'size': 'large', 'toppings': ['olives', 'basil']}",
        "bake {'size': 'large', 'toppings': ['olives', 'basil']}",
        "Order(size='small', toppings=['olives'])",
    ],
    "turns.md": [
        "asked: hello",
        "asked: are you there? I have a question",
        "raised here too: the kitchen is closed",
        "builtins.RuntimeError",
        "kept: {}",
        "{'reminded': True}",
    ],
}
PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", SAID)
def test_a_page_prints_what_it_says(page, tmp_path):
    program = "\n".join(BLOCK.findall((ROOT / "docs" / page).read_text()))
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    print(said)
    assert [line for line in SAID[page] if line not in said] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_in_the_menu_and_compiles(page):
    assert page in (ROOT / "mkdocs.yml").read_text()
    for program in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL):
        if "--8<--" not in program:
            body = "".join(f"    {line}\n" for line in program.splitlines())
            compile(f"async def page():\n    pass\n{body}", page, "exec")
