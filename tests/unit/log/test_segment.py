"""A segment's file: walks in pieces, whatever the batches' size; what a failed write leaves."""

import errno
import os
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Corrupt
from anabranch.log import segment as segment_module
from anabranch.log.config import LogConfig
from anabranch.log.segment import Segment
from anabranch.records.batch import place, read_header
from tests.support.logs import START_MS, a_disk, contents, fill, open_log_in, put, records
from tests.support.refusals import refused_after


def segment_of(folder: Path, *sizes: int, config: LogConfig | None = None, max_open: int = 100) -> Segment:
    made = Segment.create(a_disk(max_open), folder, 0, config or LogConfig())
    for offset, size in enumerate(sizes):
        batch = records("x" * size, timestamp=START_MS + offset)
        place(batch, offset, 0)
        made.append(batch, offset, START_MS + offset)
    return made


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("_find_latest", Corrupt("the time index is damaged")),
        ("offset_index", OSError(errno.EMFILE, "too many")),
        ("time_index", OSError(errno.EMFILE, "too many")),
        ("time_index", RuntimeError("a mistake of ours")),
    ],
)
def test_a_batch_that_cannot_be_noted_was_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, error: Exception
) -> None:
    made = segment_of(tmp_path, 1, 50, config=LogConfig(index_interval_bytes=0))
    if part == "_find_latest":
        made._max_timestamp = None  # as after a clean start
    before = made.file.path.read_bytes()

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        if part == "_find_latest":
            patch.setattr(Segment, part, fail)
        else:
            kind = type(getattr(made, part))
            patch.setattr(kind, "append" if part == "offset_index" else "maybe_append", fail)
        batch = records(*"abc", timestamp=START_MS + 9999)
        place(batch, 2, 0)
        with pytest.raises(type(error)):
            made.append(batch, 4, START_MS + 9999)
    assert made.file.path.read_bytes() == before
    assert (made.end_offset, made.max_timestamp) == (2, START_MS + 1)
    batch = records("d")
    place(batch, 2, 0)
    made.append(batch, 2, START_MS + 2)
    assert (made.end_offset, made.max_timestamp, made.offset_of_max_timestamp) == (3, START_MS + 2, 2)
    assert [made.offset_index.entry(i)[0] for i in range(made.offset_index.entries)] == [1, 2]


@pytest.mark.parametrize("piece", [61, 100, 128, 1000, 4 << 20])
def test_walks_in_pieces_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(segment_module, "_PIECE_BYTES", piece)
    monkeypatch.setattr(segment_module, "_SCAN_BYTES", piece)
    sizes = [0, 1, 50, 500, 5000, 3, 900, 0]
    made = segment_of(tmp_path, *sizes)
    whole = list(made.whole_batches())
    assert [place.header.base_offset for place, _ in whole] == list(range(len(sizes)))
    assert b"".join(bytes(batch) for _, batch in whole) == made.file.path.read_bytes()
    assert [p.header.base_offset for p in made.batches()] == list(range(len(sizes)))
    start = whole[3][0].position
    assert [p.header.base_offset for p, _ in made.whole_batches(start)] == list(range(3, len(sizes)))


def test_a_walk_ends_at_what_is_not_a_batch(tmp_path: Path) -> None:
    made = segment_of(tmp_path, 10, 10)
    size = made.size
    made.file.append(b"\x00" * 200)
    assert len(list(made.whole_batches())) == 2
    with pytest.raises(Corrupt):
        list(made.batches())
    made.file.truncate(size + 30)
    assert len(list(made.whole_batches())) == 2


def test_find_and_boundary_agree_with_a_scan(tmp_path: Path) -> None:
    made = segment_of(
        tmp_path, *[(i * 37) % 90 for i in range(80)], config=LogConfig(index_interval_bytes=300)
    )
    places = list(made.batches())
    for wanted in range(80):
        assert made.find(wanted) == places[wanted]
    assert made.find(80) is None
    ends = [p.position + p.header.size_bytes for p in places]
    for start in range(0, 80, 9):
        position = places[start].position
        for max_bytes in (0, 70, 150, 1000, 1 << 20):
            stop = made.boundary(position, max_bytes, made.size)
            assert stop == position or stop in ends
            assert stop - position <= max_bytes
            fits = [end for end in ends if position < end <= position + max_bytes]
            assert (stop > position) == bool(fits)


def test_a_batch_that_could_not_be_indexed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log_in(tmp_path, index_interval_bytes=0)
    fill(log, "ab")

    def fail(*values: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(type(log.active.offset_index), "append", fail)
    with pytest.raises(OSError, match="broken"):
        put(log, records("c"))
    monkeypatch.undo()
    assert put(log, records("d")) == 2
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"d")]


def test_renamed_files_are_read_under_their_new_name(tmp_path: Path) -> None:
    made = segment_of(tmp_path, 10, 20, config=LogConfig(index_interval_bytes=0), max_open=1)
    made.seal()
    made.rename(".deleted")
    assert sorted(os.listdir(tmp_path)) == [
        f"{0:020d}{kind}.deleted" for kind in (".index", ".log", ".timeindex")
    ]
    found = made.find(1)
    assert found is not None
    assert read_header(made.file.pread(61, found.position)).base_offset == 1
    made.remove()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("renamed", [0, 1])
def test_a_renaming_that_failed_half_way_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: int
) -> None:
    """After so many of its indexes: the next try leaves nothing behind that nobody removes."""
    made = segment_of(tmp_path, 10, 20, config=LogConfig(index_interval_bytes=0))
    made.seal()
    with monkeypatch.context() as broken:
        broken.setattr(DirectDisk, "rename", refused_after(renamed, DirectDisk.rename))
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            made.rename(".0.deleted")
    made.rename(".0.deleted")
    made.remove()
    assert os.listdir(tmp_path) == []


def test_room_is_taken_at_once_and_given_back(tmp_path: Path) -> None:
    log = open_log_in(tmp_path, preallocate=True, segment_bytes=1 << 20)
    path = log.active.file.path
    if path.stat().st_blocks * 512 < 1 << 20:
        pytest.skip("this file system does not reserve")
    fill(log, "ab")
    assert path.stat().st_size == log.active.size, "only what is written counts"
    log.roll()
    assert path.stat().st_blocks * 512 < 1 << 20
    assert log.active.file.path.stat().st_blocks * 512 >= 1 << 20
    log.close()
    assert contents(open_log_in(tmp_path)) == [(0, b"a"), (1, b"b")]
