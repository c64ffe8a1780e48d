"""`anabranch log dump` on a sound partition, and on every kind of damage it claims to find."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.cli.dump.findings import Batch, Entry, Problem
from anabranch.cli.dump.walk import look_through
from anabranch.cli.failure import Misuse
from anabranch.cli.main import main
from tests.unit.cli.conftest import batch

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"
NEXT_LOG = "00000000000000000030.log"
SNAPSHOT = "00000000000000000030.snapshot"
SECOND_BATCH = len(batch(0, 10))


def problems(path: Path, records: bool = True) -> list[tuple[str, int | None, str]]:
    found = look_through(path, records)
    return [(f.path.name, f.position, f.message) for f in found if isinstance(f, Problem)]


def test_a_sound_partition_has_no_problems(partition: Path) -> None:
    findings = list(look_through(partition, with_records=True))
    assert problems(partition) == []
    assert [f.header.count for f in findings if isinstance(f, Batch)] == [10, 10, 10, 5, 1]
    kinds = [f.kind for f in findings if isinstance(f, Entry)]
    assert kinds.count("record") == 36
    assert kinds.count("index") == 2
    assert kinds.count("timeindex") == 2
    assert kinds.count("producer") == kinds.count("aborted") == 1
    assert kinds.count("epoch") == 2


def test_records_are_shown_as_they_are(partition: Path) -> None:
    shown = [f.values for f in look_through(partition, True) if isinstance(f, Entry) and f.kind == "record"]
    assert shown[0]["key"] == "key-0"
    assert shown[0]["headers"] == [["h", {"base64": "/w=="}]]
    assert shown[-1] == {
        "offset": 35,
        "timestamp": shown[-1]["timestamp"],
        "control": "commit",
        "coordinator_epoch": 7,
    }


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def put(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + new + data[at + len(new) :]


DAMAGE = [
    (LOG, flip(SECOND_BATCH + 70), "CRC", SECOND_BATCH),
    (LOG, put(SECOND_BATCH + 8, struct.pack(">i", 1 << 30)), "torn: a batch of", SECOND_BATCH),
    (LOG, put(SECOND_BATCH + 8, struct.pack(">i", 5)), "a length of 5", SECOND_BATCH),
    (LOG, put(SECOND_BATCH + 16, b"\1"), "magic 1", SECOND_BATCH),
    (LOG, put(SECOND_BATCH, struct.pack(">q", 4)), "offset 4 where 10 is the least", SECOND_BATCH),
    (LOG, lambda data: data + b"half a header", "torn: 13 bytes are left", None),
    (LOG, lambda data: data + batch(30, 2), "segment before it ends at 32", None),
    (LOG, lambda data: data[:SECOND_BATCH], "2 entries point beyond the log", 0),
    (NEXT_LOG, lambda data: data + batch(36, 1, epoch=0), "leader epoch 0 after 1", None),
    (INDEX, lambda data: data[:-3], "the last entry is cut short", 8),
    (INDEX, put(4, struct.pack(">i", 11)), "where no batch begins", 0),
    (INDEX, put(0, struct.pack(">i", 18)), "whose batch ends with 19", 0),
    (TIME_INDEX, put(8, struct.pack(">i", 17)), "no batch ends with offset 17", 0),
    (TIME_INDEX, put(0, struct.pack(">q", 17)), "timestamp 17 at offset 19", 0),
    (SNAPSHOT, flip(12), "checksum", 0),
    (SNAPSHOT, lambda data: data[:5], "cut short", 0),
    ("00000000000000000030.txnindex", lambda data: data[:-1], "cut short", 0),
    ("leader-epoch-checkpoint", lambda data: b"0\n2\n1 30\n0 0\n", "epoch 0 from 0 on comes after", None),
    ("leader-epoch-checkpoint", lambda data: b"0\n3\n1 30\n", "number of lines", 0),
    ("leader-epoch-checkpoint", lambda data: b"0\n1\nx y\n", "is not an epoch and an offset", None),
    ("partition.metadata", lambda data: b"garbage\n", "is not NAME: VALUE", None),
]


@pytest.mark.parametrize(("name", "damage", "message", "position"), DAMAGE, ids=[case[2] for case in DAMAGE])
def test_damage_is_found_and_placed(
    partition: Path, name: str, damage: Callable[[bytes], bytes], message: str, position: int | None
) -> None:
    file = partition / name
    file.write_bytes(damage(file.read_bytes()))
    found = problems(partition)
    matching = [problem for problem in found if message in problem[2]]
    assert matching, found
    if position is not None:
        assert matching[0][:2] in [(name, position), (INDEX, position)]


def test_a_wrong_crc_does_not_end_the_reading(partition: Path) -> None:
    file = partition / LOG
    file.write_bytes(flip(SECOND_BATCH + 70)(file.read_bytes()))
    counts = [f.header.count for f in look_through(file, True) if isinstance(f, Batch)]
    assert counts == [10, 10, 10]


def test_records_that_lie_under_a_right_crc(partition: Path) -> None:
    file = partition / LOG
    sound = bytearray(batch(0, 10))
    sound[35:43] = struct.pack(">q", 1)  # the latest timestamp
    from anabranch.records.batch import crc_of

    sound[17:21] = struct.pack(">I", crc_of(sound))
    file.write_bytes(sound)
    assert any("the header says 1" in message for _, _, message in problems(file))
    assert problems(file, records=False) == []


def test_one_file_alone(partition: Path) -> None:
    assert problems(partition / LOG) == []
    assert problems(partition / INDEX) == []
    (partition / LOG).unlink()
    assert problems(partition / INDEX) == []


def test_a_data_folder_is_searched(partition: Path) -> None:
    (partition / LOG).write_bytes(b"short")
    assert any(name == LOG for name, _, _ in problems(partition.parent))


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    stray = tmp_path / "notes.txt"
    stray.write_text("hello")
    for path in (tmp_path / "absent", tmp_path, stray):
        with pytest.raises(Misuse):
            list(look_through(path, False))


def test_the_command_says_where_and_exits_1(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(partition), "--records"]) == 0
    shown = capsys.readouterr()
    assert "key-3" in shown.out
    assert "all as it should be" in shown.err

    file = partition / LOG
    file.write_bytes(flip(SECOND_BATCH + 70)(file.read_bytes()))
    assert main(["log", "dump", str(partition), "--summary"]) == 1
    shown = capsys.readouterr()
    assert f"PROBLEM in {LOG} at byte {SECOND_BATCH}: the CRC" in shown.out
    assert "1 problems" in shown.err


def test_json_lines(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(partition), "--records", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["type"] for line in lines} == {
        "batch", "record", "file", "index", "timeindex", "producer", "aborted", "epoch", "metadata",
    }  # fmt: skip
    assert sum(line["count"] for line in lines if line["type"] == "batch") == 36
