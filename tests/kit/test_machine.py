"""The machines, on our own stores: 200 examples of 50 steps each, and no difference."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import settings

from hitherto.stores.memory import MemoryStore
from hitherto.stores.sqlite import SQLiteStore
from hitherto.testing.machine import PATIENT, FSMStorageMachine, machine_for
from toy_store import ToyStore

EXAMPLES = settings(PATIENT, max_examples=int(os.environ.get("HITHERTO_EXAMPLES", "200")))


def in_memory(clock):
    return MemoryStore(clock=clock)


def toy(clock):
    return ToyStore(clock=clock)


def in_a_file(clock):
    folder = Path(tempfile.mkdtemp(prefix="hitherto-machine-"))
    return SQLiteStore(folder / "machine.db", synchronous="NORMAL", clock=clock)


TestTurnsInLockstep = machine_for(in_memory, toy, in_a_file, settings=EXAMPLES)
TestRecordsInLockstep = machine_for(in_memory, toy, in_a_file, settings=EXAMPLES, machine=FSMStorageMachine)
