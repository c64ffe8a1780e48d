"""A partition's folder as a broker leaves it, small enough to damage by hand."""

import struct
from pathlib import Path

import pytest

from anabranch.log import producer_snapshot
from anabranch.log.producers import Producer, Producers, WrittenBatch
from anabranch.records.builder import build_batch
from anabranch.records.control import Marker, marker_batch
from anabranch.records.record import Record

START_MS = 1_767_225_600_000  # 2026-01-01


def records(first: int, count: int) -> list[Record]:
    return [
        Record(offset, START_MS + offset, b"key-%d" % offset, b"value-%d" % offset, ((b"h", b"\xff"),))
        for offset in range(first, first + count)
    ]


def batch(first: int, count: int, epoch: int = 0, codec: int = 0) -> bytes:
    return bytes(build_batch(records(first, count), leader_epoch=epoch, codec=codec))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Segment 0: offsets 0-9, 10-19 (lz4), 20-29; segment 30: 30-34 and a commit marker at 35."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    first = [batch(0, 10), batch(10, 10, codec=3), batch(20, 10)]
    at = len(first[0]), len(first[0]) + len(first[1])
    (folder / "00000000000000000000.log").write_bytes(b"".join(first))
    (folder / "00000000000000000000.index").write_bytes(struct.pack(">iiii", 19, at[0], 29, at[1]))
    times = struct.pack(">qiqi", START_MS + 19, 19, START_MS + 29, 29)
    (folder / "00000000000000000000.timeindex").write_bytes(times)
    marker = marker_batch(
        Marker(True, 7),
        producer_id=5,
        producer_epoch=0,
        timestamp=START_MS + 35,
        base_offset=35,
        leader_epoch=1,
    )
    (folder / "00000000000000000030.log").write_bytes(batch(30, 5, epoch=1) + marker)
    (folder / "00000000000000000030.index").write_bytes(bytes(64))  # stretched beforehand, nothing in it
    (folder / "00000000000000000030.timeindex").write_bytes(b"")
    producer = Producer(5, 0)
    producer.batches.append(WrittenBatch(9, 29, 9, START_MS))
    producers = Producers()
    producers.restore(producer)
    (folder / "00000000000000000030.snapshot").write_bytes(producer_snapshot.encode(producers))
    (folder / "00000000000000000030.txnindex").write_bytes(struct.pack(">hqqqq", 0, 5, 30, 35, 36))
    (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 30\n")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: Vh7sUgqpSQCSCwBmMpuXqw\n")
    return folder
