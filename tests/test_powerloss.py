"""The power goes while SQLite writes, and the disk fails: in short. ``make powerloss`` is the long form."""

from __future__ import annotations

import random

import pytest

from powerloss.disk import Disk, Note
from powerloss.run import errors, losses, recorded

pytestmark = pytest.mark.timeout(300)
SEED = 20_261_119


def test_with_full_nothing_that_was_acknowledged_is_lost(tmp_path, say):
    found = losses(recorded(tmp_path / "full", "FULL", 12, SEED), tmp_path / "look", 200, SEED)
    say(found)
    assert found.states > 500
    assert found.lost == []
    assert found.corrupt == []


def test_with_normal_something_is_lost_or_this_proves_nothing(tmp_path, say):
    found = losses(recorded(tmp_path / "normal", "NORMAL", 12, SEED), tmp_path / "look", 100, SEED)
    say(found)
    assert found.corrupt == []
    assert len(found.lost) > 10


@pytest.mark.parametrize(("error", "lasting"), [("ENOSPC", 1_000_000), ("EIO", 1)], ids=["full disk", "once"])
def test_any_call_may_fail(tmp_path, error, lasting, say):
    found = errors(tmp_path / "faults", error, lasting)
    say(found)
    assert found["calls"] > 50
    assert found["refused"] > 50
    assert found["wrong"] == []


def disk_after(*made):
    disk = Disk("folder")
    for note in made:
        disk.apply(note)
    return disk


def left(disk, variant, seed=0):
    return disk.crashed(variant, random.Random(seed)).get("file")


OPENED = Note("O", "file", 1, b"file")
SYNCED = Note("S", "file", 0, b"")
SOME = b"a" * 1024
MORE = b"b" * 1024


def test_what_was_synced_stays():
    disk = disk_after(OPENED, Note("P", "file", 0, SOME), SYNCED, Note("P", "file", 0, MORE))
    assert left(disk, "nothing") == SOME
    assert left(disk, "everything") == MORE
    assert {left(disk, "torn", seed) for seed in range(40)} == {
        SOME, MORE, SOME[:512] + MORE[:512], MORE[:512] + SOME[:512]
    }  # fmt: skip


def test_what_was_never_synced_may_not_be_there():
    disk = disk_after(
        OPENED, Note("W", "file", 0, SOME), Note("W", "file", 0, MORE), Note("T", "file", 1500, b"")
    )
    assert left(disk, "nothing") is None
    assert left(disk, "everything") == (SOME + MORE)[:1500]


def test_a_removed_file_comes_back_unless_its_folder_was_synced():
    disk = disk_after(OPENED, Note("P", "file", 0, SOME), SYNCED, Note("U", "file", 0, b"file"))
    assert left(disk, "nothing") == SOME
    assert left(disk, "everything") is None
    disk.apply(Note("S", "folder", 0, b""))
    assert left(disk, "nothing") is None
