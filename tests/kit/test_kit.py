"""The kit, run on our own stores."""

from __future__ import annotations

import pytest

from hitherto.stores.memory import MemoryStore
from hitherto.stores.sqlite import SQLiteStore
from hitherto.testing import StoreContract
from toy_store import ToyStore


class TestMemoryStore(StoreContract):
    abilities = frozenset({"reopens"})

    @pytest.fixture
    async def store(self, clock):
        async with MemoryStore(clock=clock) as store:
            yield store


class TestToyStore(StoreContract):
    abilities = frozenset({"reopens"})

    @pytest.fixture
    async def store(self, clock):
        async with ToyStore(clock=clock) as store:
            yield store


class TestSQLiteStore(StoreContract):
    abilities = frozenset({"reopens", "shared"})

    @pytest.fixture
    async def store(self, clock, tmp_path):
        async with SQLiteStore(tmp_path / "kit.db", clock=clock, synchronous="NORMAL") as store:
            yield store

    @pytest.fixture
    async def another(self, store, clock, tmp_path):
        async with SQLiteStore(tmp_path / "kit.db", clock=clock, synchronous="NORMAL") as another:
            yield another
