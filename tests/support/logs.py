"""Logs to try things on: batches with a few words, a clock that is told the time, what a log holds.

    log = open_log_in(folder, segment_bytes=1000)
    put(log, records("a", "b"))          # offsets 0, 1
    contents(log)                        # [(0, b"a"), (1, b"b")]

`crash` lets go of a log as a killed process would.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from anabranch.base.disk import DirectDisk, Disk
from anabranch.log.config import LogConfig
from anabranch.log.local_log import LocalLog
from anabranch.log.recovery import open_log
from anabranch.records.batch import BatchHeader, read_header, split_batches
from anabranch.records.builder import build_batch
from anabranch.records.control import Marker, marker_batch
from anabranch.records.record import Record, iter_records, payload_of

START_MS = 1_700_000_000_000

_DISKS: list[Disk] = []
UNPACKED_LIMIT = 1 << 26


class SetClock:
    """Time stands still until it is moved."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def advance(self, ms: int) -> None:
        self.ms += ms


def records(
    *values: str | None,
    keys: Sequence[str | None] | None = None,
    timestamp: int = START_MS,
    **fields: Any,
) -> bytearray:
    """One batch with a record for each value, as a producer would send it."""
    return build_batch(
        [
            Record(
                i,
                timestamp,
                None if keys is None or keys[i] is None else str(keys[i]).encode(),
                None if value is None else value.encode(),
            )
            for i, value in enumerate(values)
        ],
        **fields,
    )


def marker(
    producer_id: int, *, commit: bool, epoch: int = 0, coordinator: int = 0, timestamp: int = START_MS
) -> bytearray:
    """The batch that ends a transaction."""
    return marker_batch(
        Marker(commit, coordinator), producer_id=producer_id, producer_epoch=epoch, timestamp=timestamp
    )


def a_disk(max_open: int = 100) -> DirectDisk:
    """A disk whose descriptors `release_all` gives back."""
    disk = DirectDisk(max_open)
    _DISKS.append(disk)
    return disk


def open_log_in(
    folder: Path,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start: int = 0,
    clock: SetClock | None = None,
    disk: Disk | None = None,
    **config: Any,
) -> LocalLog:
    if disk is None:
        disk = a_disk()
    else:
        _DISKS.append(disk)
    return open_log(
        disk,
        clock or SetClock(),
        folder,
        LogConfig(**config),
        clean=clean,
        recovery_point=recovery_point,
        log_start=log_start,
    )


def release_all() -> None:
    """Give back the descriptors of every log that was opened here, closed or not."""
    for disk in _DISKS:
        release(disk)
    _DISKS.clear()


def release(disk: Disk) -> None:
    for holder in list(disk.handles._lru.values()):
        holder.release()
    disk.handles._lru.clear()


def put(log: LocalLog, batch: bytearray, leader_epoch: int = 0) -> int:
    """Append a batch; its base offset."""
    return log.append(batch, read_header(batch), leader_epoch)


def fill(log: LocalLog, values: Iterable[str]) -> None:
    """Append each value as a batch of its own."""
    for value in values:
        put(log, records(value))


def batches(log: LocalLog, start: int | None = None) -> list[tuple[BatchHeader, bytes]]:
    """Every batch that a reader gets from `start` on, read as a reader does."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start if start is None else start
    while (part := log.read(offset, 1 << 20, log.log_end, whole_first=True)) is not None:
        data = part.file.pread(part.size, part.position)
        assert len(data) == part.size
        for header, batch in split_batches(data):
            found.append((header, bytes(batch)))
            offset = header.last_offset + 1
    return found


def contents(log: LocalLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record that a reader gets from `start` on."""
    first = log.log_start if start is None else start
    return [
        (record.offset, record.value)
        for header, batch in batches(log, start)
        if not header.is_control
        for record in iter_records(header, payload_of(header, batch, UNPACKED_LIMIT))
        if record.offset >= first
    ]


def crash(log: LocalLog) -> None:
    """Let go of the files as a killed process would: nothing is completed."""
    for segment in log.segments:
        segment.close()
