"""The kit, run on our own stores."""

from __future__ import annotations

import pytest

from hitherto.stores.memory import MemoryStore
from hitherto.testing.fsm import FSMStorageContract
from hitherto.testing.primitives import PrimitivesContract
from hitherto.testing.turns import TurnContract


class TestMemoryStore(FSMStorageContract, PrimitivesContract, TurnContract):
    abilities = frozenset({"reopens"})

    @pytest.fixture
    async def store(self, clock):
        async with MemoryStore(clock=clock) as store:
            yield store
