"""The indexes: Kafka's bytes, floor look-ups, truncation, files that are not whole."""

import struct
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.log.index import OffsetIndex, TimeIndex
from tests.support.logs import a_disk


@pytest.fixture
def disk() -> DirectDisk:
    return a_disk()


def test_an_offset_entry_is_two_big_endian_ints(tmp_path: Path, disk: DirectDisk) -> None:
    index = OffsetIndex(disk, tmp_path / "0.index", 1024)
    index.append(9, 4100)
    index.append(300, 70000)
    index.close()
    assert (tmp_path / "0.index").read_bytes() == bytes.fromhex("00000009 00001004 0000012c 00011170")


def test_a_time_entry_is_a_long_and_an_int(tmp_path: Path, disk: DirectDisk) -> None:
    index = TimeIndex(disk, tmp_path / "0.timeindex", 1024)
    index.maybe_append(1_700_000_000_000, 9)
    index.close()
    assert (tmp_path / "0.timeindex").read_bytes() == bytes.fromhex("0000018bcfe56800 00000009")


def test_look_ups_give_the_last_entry_that_is_not_beyond(tmp_path: Path, disk: DirectDisk) -> None:
    index = OffsetIndex(disk, tmp_path / "0.index", 1024)
    assert index.position_before(5) == 0
    for offset, position in ((10, 100), (20, 200), (30, 300)):
        index.append(offset, position)
    assert [index.position_before(o) for o in (0, 9, 10, 19, 20, 31)] == [0, 0, 100, 100, 200, 300]
    assert [index.boundary_before(p) for p in (0, 99, 100, 250, 999)] == [0, 0, 100, 200, 300]


def test_what_is_appended_after_a_look_up_is_found(tmp_path: Path, disk: DirectDisk) -> None:
    index = OffsetIndex(disk, tmp_path / "0.index", 1 << 20)
    for i in range(1, 600):
        index.append(i * 10, i * 100)
        assert index.position_before(i * 10 + 5) == i * 100
    assert index.entries == 599


def test_time_moves_on_only(tmp_path: Path, disk: DirectDisk) -> None:
    index = TimeIndex(disk, tmp_path / "0.timeindex", 1024)
    for timestamp, offset in ((100, 1), (100, 2), (50, 3), (200, 4)):
        index.maybe_append(timestamp, offset)
    assert [index.entry(i) for i in range(index.entries)] == [(100, 1), (200, 4)]
    before = [index.entry_before(t) for t in (0, 100, 101, 200, 201)]
    assert before == [None, None, (100, 1), (100, 1), (200, 4)]


def test_truncation_drops_the_offset_itself(tmp_path: Path, disk: DirectDisk) -> None:
    offsets = OffsetIndex(disk, tmp_path / "0.index", 1024)
    times = TimeIndex(disk, tmp_path / "0.timeindex", 1024)
    for i in (10, 20, 30):
        offsets.append(i, i)
        times.maybe_append(i, i)
    offsets.truncate_to(20)
    times.truncate_to(20)
    assert (offsets.entries, times.entries, times.last) == (1, 1, (10, 10))
    times.maybe_append(15, 12)
    assert times.last == (15, 12)
    assert (tmp_path / "0.index").stat().st_size == 8


def test_a_full_index_says_so(tmp_path: Path, disk: DirectDisk) -> None:
    index = OffsetIndex(disk, tmp_path / "0.index", 20)
    index.append(1, 1)
    assert index.entries < index.max_entries
    index.append(2, 2)
    assert index.entries == index.max_entries


@pytest.mark.parametrize("extra", range(1, 8))
def test_a_torn_entry_is_not_one_and_the_next_takes_its_place(
    tmp_path: Path, disk: DirectDisk, extra: int
) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(struct.pack(">ii", 5, 50) + b"\xff" * extra)
    index = OffsetIndex(disk, path, 1024)
    assert (index.entries, index.is_whole) == (1, False)
    index.append(9, 90)
    assert index.position_before(9) == 90
    index.close()
    assert path.read_bytes() == struct.pack(">iiii", 5, 50, 9, 90)


def test_a_new_life_reads_what_the_old_one_wrote(tmp_path: Path, disk: DirectDisk) -> None:
    TimeIndex(disk, tmp_path / "0.timeindex", 1024).maybe_append(77, 3)
    again = TimeIndex(disk, tmp_path / "0.timeindex", 1024)
    assert (again.entries, again.last) == (1, (77, 3))


def test_maps_and_files_share_few_descriptors(tmp_path: Path) -> None:
    disk = a_disk(max_open=3)
    indexes = [OffsetIndex(disk, tmp_path / f"{i}.index", 1024) for i in range(10)]
    for round_ in range(1, 4):
        for index in indexes:
            index.append(round_ * 10, round_ * 100)
            assert index.position_before(round_ * 10) == round_ * 100
            assert len(disk.handles) <= 3
