"""Recording, cutting off and looking: the parts of the test and of ``make powerloss``."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hitherto import codec
from hitherto.errors import StoreError, StoreWarning
from hitherto.stores.sqlite import SQLiteStore
from powerloss.disk import VARIANTS, Disk, notes
from powerloss.workload import CONVERSATIONS, address

HERE = Path(__file__).parent
_MAKING, _TRIES = 30, 4


@dataclass
class Losses:
    """What the looks found."""

    states: int = 0
    calls: int = 0
    lost: list[str] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.states} crash states of {self.calls} calls: {len(self.lost)} lost what was acknowledged, "
            f"{len(self.corrupt)} corrupt"
        )


@functools.cache
def recorder() -> Path:
    """The shim, compiled once for this process."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise RuntimeError("a C compiler (cc, gcc or clang) is needed to record what reaches the disk")
    folder = tempfile.mkdtemp(prefix="hitherto-recorder-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / "recorder.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "recorder.c", "-ldl", "-lpthread"],
        check=True,
    )
    return library


def _under_the_recorder(folder: Path, *words: str, log: Path | None = None) -> str:
    folder.mkdir(parents=True)
    told = {"LD_PRELOAD": str(recorder()), "HITHERTO_WATCH": str(folder)}
    if log is not None:
        told["HITHERTO_LOG"] = str(log)
    command = [sys.executable, "-m", "powerloss.workload", words[0], str(folder), *words[1:]]
    done = subprocess.run(
        command, cwd=HERE.parent, env={**os.environ, **told}, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def recorded(folder: Path, synchronous: str, turns: int, seed: int) -> Path:
    """The log of a workload."""
    log = folder.with_suffix(".log")
    _under_the_recorder(folder, "record", synchronous, str(turns), str(seed), log=log)
    return log


def errors(folder: Path, error: str, lasting: int) -> dict[str, Any]:
    """What came of every call failing in its turn: *lasting* calls from it on."""
    found: dict[str, Any] = json.loads(_under_the_recorder(folder, "fail", error, str(lasting)))
    return found


def losses(log: Path, folder: Path, states: int, seed: int) -> Losses:
    """Cut the power *states* times, at moments that are spread over the whole recording, and look.

    Besides, several times at every moment while the file is made, when the least is certain.
    """
    warnings.simplefilter("ignore", StoreWarning)
    chance, found = random.Random(seed), Losses()
    calls = list(notes(log))
    moments = [(place, variant) for place in range(len(calls)) for variant in VARIANTS]
    chosen = set(chance.sample(moments, min(states, len(moments))))
    disk = Disk(log.stem)
    folder.mkdir()

    async def look() -> None:
        for place, note in enumerate(calls):
            disk.apply(note)
            for variant in VARIANTS:
                times = _TRIES if place < _MAKING else (place, variant) in chosen
                for _ in range(times):
                    await _look(disk.crashed(variant, chance), disk.acks, folder, found, f"{place} {variant}")

    asyncio.run(look())
    found.calls = len(calls)
    return found


async def _look(files: dict[str, bytes], acks: list[bytes], folder: Path, found: Losses, where: str) -> None:
    """Open what the crash left; every acknowledged turn has to be there, and nothing that is no prefix."""
    found.states += 1
    _lay_out(files, folder)
    acked = [-1] * CONVERSATIONS
    for ack in acks:
        who, number = map(int, ack.split())
        acked[who] = number
    try:
        logs = await _logs(folder)
    except StoreError as error:
        found.corrupt.append(f"{where}: {error}")
        return
    for who, log in enumerate(logs):
        if log != list(range(len(log))):
            found.corrupt.append(f"{where}: conversation {who} keeps {log}")
        elif len(log) <= acked[who]:
            found.lost.append(f"{where}: conversation {who} ends at {len(log) - 1}, not at {acked[who]}")
            break


def _lay_out(files: dict[str, bytes], folder: Path) -> None:
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


async def _logs(folder: Path) -> list[list[int]]:
    logs = []
    async with SQLiteStore(folder / "power.db") as store:
        for who in range(CONVERSATIONS):
            document = await store.load(address(who))
            logs.append([] if document.record is None else codec.decode(document.record.fields)["log"])
    return logs
