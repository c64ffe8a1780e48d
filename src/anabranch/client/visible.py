"""Visible batches: those of a fetched buffer that a reader may see.

A broker answers a fetch with whole batches as they are stored, so a reader has to leave out

    control batches      the ends of transactions; they have offsets but no data
    aborted batches      of a transaction that was aborted; only if the reader asked for committed data, and
                         then the broker's answer names the producers and where their transactions began
    a batch cut short    at the end of the buffer, where the broker's limit on bytes fell inside it

An abort marker ends what its producer has in the buffer; the next transaction of the same producer is
judged by itself.  A batch's CRC is checked before anything of it is believed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt, UnsupportedForFormat
from anabranch.records.batch import HEADER_SIZE, MAGIC, OVERHEAD, BatchHeader, crc_of, read_header
from anabranch.records.control import read_marker
from anabranch.records.record import iter_records

_MAGIC_AT = 16
_LARGEST_MARKER_BYTES = 1 << 16


class Aborted(NamedTuple):
    """A transaction that was aborted, and its first offset in the partition."""

    producer_id: int
    first_offset: int


class Stored(NamedTuple):
    """A batch and where its records, perhaps compressed, lie in the buffer."""

    header: BatchHeader
    start: int
    end: int


def whole_batches(buffer: Buffer) -> Iterator[Stored]:
    """Every whole batch of `buffer`, checked."""
    view = memoryview(buffer)
    at = 0
    while len(view) - at > _MAGIC_AT:
        if view[at + _MAGIC_AT] != MAGIC:
            raise UnsupportedForFormat(f"a batch of format {view[at + _MAGIC_AT]}: only {MAGIC} can be read")
        if len(view) - at < HEADER_SIZE:
            return
        header = read_header(view, at)
        end = at + header.size_bytes
        if header.length < HEADER_SIZE - OVERHEAD:
            raise Corrupt(f"the batch at offset {header.base_offset} claims {header.length} bytes")
        if end > len(view):
            return
        if crc_of(view[at:end]) != header.crc:
            raise Corrupt(f"the batch at offset {header.base_offset} does not have its checksum")
        yield Stored(header, at + HEADER_SIZE, end)
        at = end


def visible_batches(buffer: Buffer, stored: Sequence[Stored], aborted: Sequence[Aborted]) -> Iterator[Stored]:
    """Those of `stored` whose records a reader may see."""
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    ended: set[int] = set()  # producers whose aborted transaction we are inside
    for batch in stored:
        header = batch.header
        while waiting and waiting[-1].first_offset <= header.last_offset:
            ended.add(waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in ended and _aborts(buffer, batch):
                ended.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ended):
            yield batch


def _aborts(buffer: Buffer, batch: Stored) -> bool:
    payload = bytes(memoryview(buffer)[batch.start : batch.end][:_LARGEST_MARKER_BYTES])
    markers = [read_marker(record) for record in iter_records(batch.header, payload)]
    return any(marker is not None and not marker.commit for marker in markers)
