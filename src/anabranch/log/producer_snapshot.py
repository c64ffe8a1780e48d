"""Producer snapshots: the state of a partition's producers before an offset, in Kafka's format.

    version 2 bytes (1) · CRC-32C 4 bytes, of what follows · count 4 bytes · entries of 46 bytes:
    producer id 8 · epoch 2 · last sequence 4 · last offset 8 · offset delta 4 · timestamp 8 ·
    coordinator epoch 4 · first offset of the open transaction 8 (-1: none)

A snapshot is taken when a segment is rolled and on a clean stop, so that recovery need not read the
whole log.  Only the last batch of a producer is kept in it, as in Kafka.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from anabranch.base.disk import Disk
from anabranch.base.errors import Corrupt
from anabranch.log.paths import SNAPSHOT, base_offset_of, segment_file
from anabranch.log.producers import Producer, Producers, WrittenBatch

VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode(producers: Producers) -> bytes:
    body = bytearray(_COUNT.pack(len(producers)))
    for producer in producers:
        last = producer.batches[-1] if producer.batches else WrittenBatch(-1, -1, 0, producer.updated_ms)
        first = producer.txn_first_offset
        body += _ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            producer.updated_ms,
            producer.coordinator_epoch,
            -1 if first is None else first,
        )
    return _HEAD.pack(VERSION, crc32c(body)) + bytes(body)


def decode(data: bytes) -> Producers:
    """Corrupt if `data` is not a whole snapshot."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise Corrupt("the snapshot is cut short")
    version, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != VERSION or crc32c(body) != crc:
        raise Corrupt(f"the snapshot is of version {version} or its checksum is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise Corrupt(f"the snapshot claims {count} producers in {len(body)} bytes")
    producers = Producers()
    for entry in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = entry
        producer = Producer(producer_id, epoch)
        if offset >= 0:
            producer.batches.append(WrittenBatch(sequence, offset, delta, timestamp))
        producer.updated_ms = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.txn_first_offset = None if first < 0 else first
        producers.restore(producer)
    return producers


def write(disk: Disk, folder: Path, offset: int, producers: Producers) -> None:
    disk.write_whole(segment_file(folder, offset, SNAPSHOT), encode(producers), sync=False)


def offsets(names: Sequence[str]) -> list[int]:
    """The offsets of the snapshots among file names, newest first."""
    found = (base_offset_of(name) for name in names if name.endswith(SNAPSHOT))
    return sorted((offset for offset in found if offset is not None), reverse=True)
