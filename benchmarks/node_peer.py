"""Vercel's Chat SDK, where there is Node: asked for its rate, so that its rounds stand among the others."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

HERE = Path(__file__).parent / "node"
PACKAGES = ("chat@4", "@chat-adapter/state-redis@4", "@chat-adapter/state-pg@4")


def installed(folder: Path) -> Path | None:
    """A folder with the packages in it; ``None`` where there is no Node or no registry."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / "chat").exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *PACKAGES]
        (folder / "package.json").write_text("{}")
        if subprocess.run(command, capture_output=True, timeout=300).returncode:
            return None
    return folder


def versions(folder: Path) -> dict[str, str]:
    """What was installed."""
    found = {}
    for package in PACKAGES:
        name = package.rpartition("@")[0]
        found[name] = json.loads((folder / "node_modules" / name / "package.json").read_text())["version"]
    return found


@asynccontextmanager
async def chat(
    folder: Path, place: str, url: str, seconds: float
) -> AsyncIterator[Callable[[int], Awaitable[float]]]:
    """A function that says how many messages a second are handled in so many threads at once."""
    script = shutil.copy(HERE / "chat.mjs", folder)
    process = await asyncio.create_subprocess_exec(
        "node", script, place, url, str(seconds), cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    asked, answers = process.stdin, process.stdout

    async def rate(threads: int) -> float:
        asked.write(f"{threads}\n".encode())
        await asked.drain()
        line = await asyncio.wait_for(answers.readline(), seconds * 10 + 60)
        if not line:
            raise RuntimeError("the Chat SDK's process ended")
        found: float = json.loads(line)["rate"]
        return found

    try:
        yield rate
    finally:
        process.kill()
        await process.communicate()
