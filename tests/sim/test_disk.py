"""The simulated disk: what is there while all is well, and what a power cut leaves of it."""

from pathlib import Path
from random import Random

import pytest

from anabranch.base.errors import DiskFull
from tests.sim.disk import Attached, MemoryDisk
from tests.support.worlds import Inline

DATA = Path("/data")
FILE = DATA / "a"


def attached(disk: MemoryDisk) -> Attached:
    made = disk.attach(Inline)
    made.make_dirs(DATA)
    return made


def a_disk(seed: int = 1) -> MemoryDisk:
    return MemoryDisk(Random(seed), lambda: 0)


def test_files_and_names() -> None:
    disk = attached(a_disk())
    file = disk.open(FILE)
    assert not disk.exists(FILE)
    assert file.append(b"hello") == 0
    assert file.append(b" world") == 5
    assert (file.pread(5, 6), disk.size(FILE), disk.list(DATA)) == (b"world", 11, ["a"])
    file.truncate(5)
    disk.rename(FILE, DATA / "b")
    assert disk.read_whole(DATA / "b") == b"hello"
    disk.make_dirs(DATA / "folder" / "below")
    disk.write_whole(DATA / "folder" / "below" / "c", b"c")
    disk.rename(DATA / "folder", DATA / "moved")
    assert disk.list(DATA) == ["b", "moved"]
    assert disk.read_tail(DATA / "moved" / "below" / "c", 9) == b"c"
    disk.remove_tree(DATA / "moved")
    disk.remove(DATA / "nothing")
    assert disk.list(DATA) == ["b"]
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.pread(1, 0)


def test_a_power_cut_leaves_what_was_synced_and_some_of_the_rest() -> None:
    sizes = set()
    for seed in range(200):
        memory = a_disk(seed)
        disk = attached(memory)
        file = disk.open(FILE)
        file.append(b"synced")
        file.sync()
        disk.sync_dir(DATA)
        file.append(b"-lost")
        memory.power_cut()
        left = attached(memory).read_whole(FILE)
        assert left.startswith(b"synced")
        assert (b"synced-lost" + bytes(100)).startswith(left.rstrip(b"\0"))
        sizes.add(len(left.rstrip(b"\0")))
    assert sizes == set(range(6, 12))


def test_what_was_cut_off_may_be_back_after_a_power_cut() -> None:
    seen = set()
    for seed in range(100):
        memory = a_disk(seed)
        disk = attached(memory)
        file = disk.open(FILE)
        file.append(b"abcdef")
        file.sync()
        disk.sync_dir(DATA)
        file.truncate(3)
        memory.power_cut()
        seen.add(attached(memory).read_whole(FILE))
    assert seen == {b"abc", b"abcdef"}


def test_names_are_lost_from_some_point_on() -> None:
    seen = set()
    for seed in range(200):
        memory = a_disk(seed)
        disk = attached(memory)
        disk.sync_dir(DATA)
        for name in ("a", "b", "c"):
            disk.open(DATA / name).create()
        memory.power_cut()
        seen.add(tuple(attached(memory).list(DATA)))
    assert seen == {(), ("a",), ("a", "b"), ("a", "b", "c")}


def test_a_process_that_is_gone_writes_nothing_more() -> None:
    memory = a_disk()
    disk = attached(memory)
    file = disk.open(FILE)
    file.append(b"a")
    memory.detach()
    with pytest.raises(OSError, match="gone"):
        file.append(b"b")
    assert attached(memory).read_whole(FILE) == b"a"


def test_a_full_disk_and_one_that_fails_to_sync() -> None:
    memory = a_disk()
    disk = attached(memory)
    file = disk.open(FILE)
    memory.room_bytes = 3
    with pytest.raises(DiskFull):
        file.append(b"abcd")
    file.append(b"abc")
    memory.sync_error = OSError("bad block")
    with pytest.raises(OSError, match="bad block"):
        file.sync()
