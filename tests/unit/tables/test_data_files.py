import random
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.base.errors import Corrupt, Invalid, Unavailable
from anabranch.spark.column_types import TYPES, arrow_schema
from anabranch.tables import data_files, scanning
from anabranch.tables.data_files import HourlyFiles, merge_files
from anabranch.tables.merging import VARIOUS
from anabranch.tables.scanning import first_offset_at, read_slices
from anabranch.tables.seam import Slice
from anabranch.tables.snapshot import DataFile, Span
from tests.unit.tables.conftest import HOUR_MS

SCHEMA = arrow_schema(
    [
        name
        for name in TYPES
        if name in ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
)
START_MS = 1_794_794_400_000  # 2026-11-16, two in the morning
HEADERS = [None, [{"key": "h", "value": b"1"}], []]


def rows(offsets: list[int], times_ms: list[int]) -> pa.RecordBatch:
    columns = {
        "key": [None if at % 3 == 0 else b"k%d" % at for at in offsets],
        "value": [None if at % 5 == 0 else b"v%d" % at * (at % 4) for at in offsets],
        "topic": ["orders"] * len(offsets),
        "partition": [2] * len(offsets),
        "offset": offsets,
        "timestamp": pa.array([time * 1000 for time in times_ms], pa.int64()).view(
            SCHEMA.field("timestamp").type
        ),
        "timestampType": [0] * len(offsets),
        "headers": [HEADERS[at % 3] for at in offsets],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def written(table: Path, *batches: pa.RecordBatch) -> tuple[DataFile, ...]:
    with HourlyFiles(table, 2, SCHEMA) as files:
        for batch in batches:
            files.add(batch)
        return files.finish()


def whole(files: tuple[DataFile, ...]) -> list[Slice]:
    return [Slice(file, file.span) for file in files]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    batch = rows(list(range(100)), [START_MS + at for at in range(100)])
    (file,) = written(tmp_path, batch.slice(0, 33), batch.slice(33))
    assert (file.partition, file.first, file.end, file.rows) == (2, 0, 100, 100)
    assert (file.min_ms, file.max_ms) == (START_MS, START_MS + 99)
    assert file.hour == "hour=2026-11-16-02"
    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    assert pa.Table.from_batches(read_slices(tmp_path, whole((file,)), SCHEMA)) == pa.Table.from_batches(
        [batch]
    )


def test_only_the_columns_and_offsets_that_are_asked_for(tmp_path: Path) -> None:
    (file,) = written(tmp_path, rows(list(range(0, 100, 2)), [START_MS] * 50))
    schema = pa.schema([("value", pa.binary())])
    found = pa.Table.from_batches(read_slices(tmp_path, [Slice(file, Span(10, 15))], schema))
    assert found.to_pydict() == {"value": [None, b"v12" * 0, b"v14" * 2]}


def test_row_groups_without_wanted_offsets_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_GROUP_BYTES", 1)
    (file,) = written(
        tmp_path, *(rows(list(range(at, at + 10)), [START_MS] * 10) for at in range(0, 100, 10))
    )
    with pq.ParquetFile(tmp_path / file.path) as opened:
        assert opened.num_row_groups == 10
        assert list(scanning._groups(opened, Slice(file, Span(25, 41)))) == [2, 3, 4]


def test_rows_go_to_the_files_of_their_hours(tmp_path: Path) -> None:
    hours = [0, 1, 0, 2, 1]
    files = written(tmp_path, rows(list(range(5)), [START_MS + hour * HOUR_MS for hour in hours]))
    assert {file.hour: (file.first, file.end, file.rows) for file in files} == {
        "hour=2026-11-16-02": (0, 3, 2),
        "hour=2026-11-16-03": (1, 5, 2),
        "hour=2026-11-16-04": (3, 4, 1),
    }


def test_times_that_are_everywhere_share_files(tmp_path: Path) -> None:
    rng = random.Random(5)
    times = [rng.choice([-1, 1 << 53, rng.randrange(1 << 42)]) for _ in range(2000)]
    files = written(tmp_path, rows(list(range(2000)), times))
    assert len(files) == data_files._MOST_HOURS + 1
    assert any(file.hour == VARIOUS for file in files)
    offsets = [
        at
        for batch in read_slices(tmp_path, whole(files), SCHEMA)
        for at in batch.column("offset").to_pylist()
    ]
    assert sorted(offsets) == list(range(2000))
    for file in files:
        found = pa.Table.from_batches(read_slices(tmp_path, whole((file,)), SCHEMA))
        times_us = np.asarray(found["timestamp"].cast(pa.int64()))
        assert (file.min_ms, file.max_ms) == (times_us.min() // 1000, times_us.max() // 1000)


def test_a_file_that_is_large_enough_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "FILE_BYTES", 2000)
    files = written(tmp_path, *(rows(list(range(at, at + 10)), [START_MS] * 10) for at in range(0, 100, 10)))
    assert len(files) > 2
    assert [file.first for file in files[1:]] == [file.end for file in files[:-1]]


def test_who_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with HourlyFiles(tmp_path, 2, SCHEMA) as files:
            files.add(rows([1], [START_MS]))
            raise KeyError("in between")

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_small_files_become_one(tmp_path: Path) -> None:
    batches = [rows(list(range(at, at + 10)), [START_MS] * 10) for at in range(0, 40, 10)]
    small = [written(tmp_path, batch)[0] for batch in batches]
    (large,) = merge_files(tmp_path, small)
    assert (large.first, large.end, large.rows, large.layout) == (0, 40, 40, small[0].layout)
    assert pa.Table.from_batches(read_slices(tmp_path, whole((large,)), SCHEMA)) == pa.Table.from_batches(
        batches
    )


def test_the_first_offset_at_a_time(tmp_path: Path) -> None:
    (file,) = written(tmp_path, rows([1, 4, 6, 9], [START_MS + 5, START_MS + 1, START_MS + 7, START_MS + 7]))
    found = [first_offset_at(tmp_path, file, START_MS + at) for at in (0, 1, 6, 7, 8)]
    assert found == [1, 1, 6, 6, None]


def test_bad_files_are_said(tmp_path: Path) -> None:
    (file,) = written(tmp_path, rows(list(range(10)), [START_MS] * 10))
    with pytest.raises(Invalid, match="no column messageId"):
        list(read_slices(tmp_path, whole((file,)), pa.schema([("messageId", pa.binary())])))
    place = tmp_path / file.path
    data = place.read_bytes()
    for damaged in (b"", data[:50], b"x" * len(data)):
        place.write_bytes(damaged)
        with pytest.raises(Corrupt, match=r"damaged|cannot be read"):
            list(read_slices(tmp_path, whole((file,)), SCHEMA))
    place.unlink()
    with pytest.raises(Unavailable, match="is not there"):
        list(read_slices(tmp_path, whole((file,)), SCHEMA))


def test_a_bit_that_flips_is_noticed(tmp_path: Path) -> None:
    """Wherever it is: the rows are right, or nobody gets any that are wrong."""
    batch = rows(list(range(500)), [START_MS + at for at in range(500)])
    (file,) = written(tmp_path, batch)
    data = (tmp_path / file.path).read_bytes()
    rng = random.Random(1)
    noticed = 0
    for _ in range(400):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (tmp_path / file.path).write_bytes(damaged)
        try:
            found = pa.Table.from_batches(read_slices(tmp_path, whole((file,)), SCHEMA))
        except Corrupt:
            noticed += 1
        else:
            assert found == pa.Table.from_batches([batch])
    assert noticed > 300


def test_a_file_of_other_rows_is_not_believed(tmp_path: Path) -> None:
    (file,) = written(tmp_path, rows([1, 2], [START_MS] * 2))
    (other,) = written(tmp_path, rows([1], [START_MS]))
    (tmp_path / other.path).rename(tmp_path / file.path)
    with pytest.raises(Corrupt, match="does not have its checksum"):
        list(read_slices(tmp_path, whole((file,)), SCHEMA))
    told = msgspec.structs.replace(file, footer_crc=other.footer_crc)
    with pytest.raises(Corrupt, match="has 1 rows, not 2"):
        list(read_slices(tmp_path, whole((told,)), SCHEMA))
