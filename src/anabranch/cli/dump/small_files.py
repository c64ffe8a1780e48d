"""The small files beside the segments: snapshots, aborted transactions, leader epochs, the topic's id.

A checkpoint that a broker would silently do without is a problem here: somebody asked.
"""

import struct
from collections.abc import Generator, Iterator
from pathlib import Path

from anabranch.base.errors import Corrupt
from anabranch.cli.dump.findings import Entry, FileDone, FileOpened, Finding, Problem
from anabranch.log import producer_snapshot

MAX_BYTES = 64 << 20
_ABORTED = struct.Struct(">hqqqq")


def _contents(path: Path) -> Generator[Finding, None, bytes]:
    size = path.stat().st_size
    yield FileOpened(path, size)
    if size > MAX_BYTES:
        yield Problem(path, None, f"{size} bytes are too many for such a file")
        return b""
    return path.read_bytes()


def read_snapshot(path: Path) -> Iterator[Finding]:
    data = yield from _contents(path)
    try:
        producers = producer_snapshot.decode(data)
    except Corrupt as error:
        yield Problem(path, 0, str(error))
        return
    for producer in producers:
        values = {
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "timestamp": producer.updated_ms,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_first_offset": producer.txn_first_offset,
        }
        yield Entry(path, "producer", values)
    yield FileDone(path, {"producers": len(producers)})


def read_aborted(path: Path) -> Iterator[Finding]:
    data = yield from _contents(path)
    whole = len(data) // _ABORTED.size * _ABORTED.size
    for version, producer_id, first, last, last_stable in _ABORTED.iter_unpack(data[:whole]):
        values = {
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable": last_stable,
        }
        yield Entry(path, "aborted", values)
        if version != 0 or first > last:
            yield Problem(path, None, f"version {version}, offsets {first} to {last} cannot be")
    if whole != len(data):
        yield Problem(path, whole, "the last entry is cut short")
    yield FileDone(path, {"aborted transactions": whole // _ABORTED.size})


def read_epochs(path: Path) -> Iterator[Finding]:
    """`leader-epoch-checkpoint`: version, number of lines, then `epoch start` in ascending order."""
    data = yield from _contents(path)
    lines = data.decode("utf-8", "replace").splitlines()
    if lines[:1] != ["0"] or len(lines) < 2 or lines[1] != str(len(lines) - 2):
        yield Problem(path, 0, "the version or the number of lines is wrong")
        return
    before = (-1, -1)
    for line in lines[2:]:
        words = line.split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            yield Problem(path, None, f"{line!r} is not an epoch and an offset")
            return
        epoch, start = map(int, words)
        yield Entry(path, "epoch", {"epoch": epoch, "start": start})
        if epoch <= before[0] or start < before[1]:
            yield Problem(
                path, None, f"epoch {epoch} from {start} on comes after epoch {before[0]} from {before[1]} on"
            )
        before = (epoch, start)
    yield FileDone(path, {"epochs": len(lines) - 2})


def read_metadata(path: Path) -> Iterator[Finding]:
    """`partition.metadata`: `name: value` lines."""
    data = yield from _contents(path)
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            yield Entry(path, "metadata", {name.strip(): value.strip()})
        else:
            yield Problem(path, None, f"{line!r} is not NAME: VALUE")
    yield FileDone(path, {})
