"""Tables as Spark writes them: only what the log of a stream lists is there."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from demo.parquet import LOG, read_table


def write(file: Path, numbers: list[int]) -> Path:
    times = pa.array([datetime(2026, 3, 2, 9, tzinfo=UTC)] * len(numbers), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"n": numbers, "at": times, "other": numbers}), file)
    return file


def note(table: Path, name: str, *files: Path) -> None:
    (table / LOG).mkdir(exist_ok=True)
    lines = [json.dumps({"path": file.as_uri(), "action": "add"}) for file in files]
    (table / LOG / name).write_text("\n".join(["v1", *lines]))


def numbers(table: Path) -> list[int]:
    return sorted(row["n"] for row in read_table(table, ["n"]))


def test_a_table_without_a_log_is_its_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1, 2])
    write(tmp_path / "b.parquet", [3])
    assert numbers(tmp_path) == [1, 2, 3]


def test_times_are_milliseconds(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1])
    assert read_table(tmp_path, ["n", "at"]) == [{"n": 1, "at": 1_772_442_000_000}]


def test_what_the_log_does_not_list_was_never_committed(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a b.parquet", [1]), write(tmp_path / "b.parquet", [2])
    write(tmp_path / "c.parquet", [3])
    note(tmp_path, "0", first)
    note(tmp_path, "1", second)
    assert numbers(tmp_path) == [1, 2]


def test_a_summary_stands_for_all_before_it(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{number}.parquet", [number]) for number in range(4)]
    note(tmp_path, "8", files[0])
    note(tmp_path, "9.compact", files[0], files[1])
    note(tmp_path, "10", files[2])
    assert numbers(tmp_path) == [0, 1, 2]


def test_no_table_has_no_rows(tmp_path: Path) -> None:
    assert read_table(tmp_path / "none", ["n"]) == []
