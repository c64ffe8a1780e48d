"""Files on a real disk: bounded descriptors, appends that are all or nothing, replacements likewise."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk, Handles
from anabranch.base.errors import DiskFull
from anabranch.base.executors import thread_pool


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """As on a full disk: no file can grow beyond `size`."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- descriptors


def test_no_more_descriptors_than_allowed(tmp_path: Path) -> None:
    disk = DirectDisk(max_open=8)
    before = descriptors()
    files = [disk.open(tmp_path / str(number)) for number in range(50)]
    for turn in range(3):
        for number, file in enumerate(files):
            file.append(b"%d,%d;" % (number, turn))
            assert descriptors() - before <= 8
    for number, file in enumerate(files):
        assert file.pread(100, 0) == b"".join(b"%d,%d;" % (number, turn) for turn in range(3))
        assert file.size == os.stat(file.path).st_size
    assert len(disk.handles) == 8
    for file in files:
        file.close()
    assert descriptors() == before
    assert len(disk.handles) == 0


def test_the_least_recently_used_goes_first() -> None:
    released = []

    class Holder:
        def __init__(self, name: str) -> None:
            self.name = name

        def release(self) -> None:
            released.append(self.name)

    handles = Handles(2, thread_pool("read", 1))
    a, b, c = Holder("a"), Holder("b"), Holder("c")
    handles.opened(a)
    handles.opened(b)
    handles.used(a)
    handles.opened(c)
    assert released == ["b"]
    handles.closed(a)
    handles.opened(b)
    assert released == ["b"]
    assert len(handles) == 2


def test_a_file_that_was_renamed_while_its_descriptor_was_gone(tmp_path: Path) -> None:
    disk = DirectDisk(max_open=1)
    file, other = disk.open(tmp_path / "old"), disk.open(tmp_path / "other")
    file.append(b"before")
    other.append(b"x")
    file.rename(tmp_path / "new")
    other.append(b"x")
    file.append(b" and after")
    assert (tmp_path / "new").read_bytes() == b"before and after"
    assert not (tmp_path / "old").exists()


def test_a_closed_file_is_not_opened_again(tmp_path: Path) -> None:
    """Its path may be another's by now: a topic was deleted and made again under its name."""
    disk = DirectDisk()
    file = disk.open(tmp_path / "log")
    file.append(b"ours")
    file.close()
    (tmp_path / "log").write_bytes(b"theirs")
    for touch in (lambda: file.pread(4, 0), lambda: file.append(b"x"), lambda: file.truncate(0), file.fileno):
        with pytest.raises(OSError, match="closed"):
            touch()
    assert (tmp_path / "log").read_bytes() == b"theirs"
    file.close()
    file.release()


def test_a_syncer_outlives_the_descriptor_and_leaves_none_behind(tmp_path: Path) -> None:
    disk = DirectDisk()
    before = descriptors()
    file = disk.open(tmp_path / "log")
    file.append(b"x")
    sync = file.syncer()
    file.close()
    sync()
    assert descriptors() == before


# --- a full disk


def test_an_append_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    file = DirectDisk().open(tmp_path / "log")
    file.append(bytes(900))
    with files_end_at(1000):
        with pytest.raises(DiskFull, match="no room"):
            file.append(bytes(200))
        assert file.size == 900
        assert os.stat(file.path).st_size == 900
        assert file.append(bytes(100)) == 900
        with pytest.raises(DiskFull):
            file.append(b"x")
    assert file.append(b"y") == 1000
    assert file.pread(10, 995) == bytes(5) + b"y"


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, memoryview(data)[:7], at))
    file = DirectDisk().open(tmp_path / "log")
    data = bytes(range(100))
    assert file.append(data) == 0
    assert file.append(memoryview(bytearray(data))) == 100
    monkeypatch.undo()
    assert file.pread(300, 0) == data * 2


def test_a_replacement_that_does_not_fit_leaves_the_old_content(tmp_path: Path) -> None:
    disk, path = DirectDisk(), tmp_path / "checkpoint"
    disk.write_whole(path, b"old")
    with files_end_at(1000), pytest.raises(DiskFull, match="no room"):
        disk.write_whole(path, bytes(2000))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint"], "what was begun takes room that is needed"
    disk.write_whole(path, b"new", sync=False)
    assert disk.read_whole(path) == b"new"


@pytest.mark.parametrize("step", ["open", "rename"])
def test_no_room_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    disk, path = DirectDisk(), tmp_path / "checkpoint"
    disk.write_whole(path, b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(DiskFull, match="no room"):
        disk.write_whole(path, b"new")
    with pytest.raises(DiskFull, match="no room") if step == "open" else nullcontext():
        disk.open(tmp_path / "another").append(b"a")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert "checkpoint.tmp" not in os.listdir(tmp_path)


# --- what is not there


def test_what_is_not_there(tmp_path: Path) -> None:
    disk, path = DirectDisk(), tmp_path / "none"
    assert (disk.size(path), disk.read_whole(path), disk.modified_ms(path), disk.exists(path)) == (
        0,
        b"",
        0,
        False,
    )
    disk.remove(path)
    disk.remove_tree(path)
    disk.make_dirs(path / "a" / "b")
    disk.make_dirs(path / "a" / "b")
    assert disk.list(path) == ["a"]
    disk.remove_tree(path)
    assert not disk.exists(path)
