"""A part of a log without what was acknowledged ahead (`handover`).

    batches   . . . . │ . # . . │ # # # # │ . . . .
              as it is  anew      left out   as it is

Batches that nobody has acknowledged anything of go out as they are.  One that is acknowledged in part is
made again, as compaction would; one that is acknowledged whole is read over.
"""

import asyncio

from anabranch.base.network import FileRange
from anabranch.partition.partition import Partition
from anabranch.partition.translations import LARGE_BYTES, Translated, key_of
from anabranch.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from anabranch.records.builder import empty_batch, retain
from anabranch.records.entry_payloads import LIMIT_BYTES
from anabranch.records.record import iter_spans, payload_of
from anabranch.subscriptions.cursor import Cursor

_MOST_BATCHES = 256


def unacked_part(
    partition: Partition, part: FileRange | bytes, cursor: Cursor
) -> "FileRange | bytes | asyncio.Future[None]":
    """The beginning of `part`, in Kafka's form, as far as it can be given in one go; or when to ask again."""
    size = part.size if isinstance(part, FileRange) else len(part)
    at = 0
    for _ in range(_MOST_BATCHES):
        if at >= size:
            break
        header = read_header(_bytes_at(part, at, HEADER_SIZE))
        if cursor.acked_between(header.base_offset, header.last_offset + 1):
            if not at:
                return _rest(partition, header, _bytes_at(part, 0, header.size_bytes), cursor)
            break
        at += header.size_bytes
    return FileRange(part.file, part.position, at) if isinstance(part, FileRange) else part[:at]


def passed(start: int, end: int, leader_epoch: int) -> bytes:
    """A batch without records from `start` up to `end`: its reader goes on behind it."""
    nothing = BatchHeader(start, 0, leader_epoch, MAGIC, 0, 0, end - start - 1, -1, -1, -1, -1, -1, 0)
    return bytes(empty_batch(nothing))


def _bytes_at(part: FileRange | bytes, at: int, size: int) -> bytes:
    if isinstance(part, FileRange):
        return part.file.pread(size, part.position + at)
    return part[at : at + size]


def _rest(
    partition: Partition, header: BatchHeader, batch: bytes, cursor: Cursor
) -> "bytes | asyncio.Future[None]":
    acked = frozenset(
        offset
        for offset in range(header.base_offset, header.last_offset + 1)
        if cursor.is_acked_ahead(offset)
    )
    if len(batch) <= LARGE_BYTES and not header.codec:
        return _without(header, batch, acked)
    key = key_of((partition, cursor), header)
    kept = partition.translations.find(key)
    if kept is not None:
        return kept.data

    async def made() -> Translated:
        return Translated(await partition.translations.aside(_without, header, batch, acked))

    return partition.translations.begin(key, made)


def _without(header: BatchHeader, batch: bytes, acked: frozenset[int]) -> bytes:
    payload = payload_of(header, batch, LIMIT_BYTES)
    return bytes(
        retain(header, payload, [span for span in iter_spans(header, payload) if span.offset not in acked])
    )
