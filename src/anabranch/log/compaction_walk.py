"""Compaction walk through a log, batch by batch: paced, with the keys noted.

The first walk is over what is dirty.  It leaves the last offset of every key in a table (`compaction_keys`);
the second one, which copies, is `compaction_filter`'s.
"""

from collections.abc import Callable, Iterator

from anabranch.base.disk import Buffer
from anabranch.base.errors import Corrupt
from anabranch.log.compaction_entries import OpenEntry, Superseding
from anabranch.log.compaction_fates import Fates
from anabranch.log.compaction_filter import UNREADABLE, check, marker_of
from anabranch.log.compaction_keys import LastOffsets
from anabranch.log.segment import Segment
from anabranch.records.batch import PULSAR_ENTRY, BatchHeader
from anabranch.records.record import iter_spans, payload_of


class Tally:
    """Counts bytes, and has them paced."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self.read_bytes = 0
        self.written_bytes = 0

    def read(self, size: int) -> None:
        self.read_bytes += size
        self._spend(size)

    def wrote(self, size: int) -> None:
        self.written_bytes += size
        self._spend(size)


def batches(segment: Segment, position: int, tally: Tally) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a sealed segment.  Corrupt if it does not end where a batch does."""
    for place, batch in segment.whole_batches(position):
        tally.read(len(batch))
        yield place.header, batch
        position = place.position + len(batch)
    if position != segment.size:
        raise Corrupt(f"{segment.file.path} has no batch at {position}")


class KeyWalk:
    """What is known on the way over the keys of a log, from `start` on."""

    __slots__ = ("fates", "start", "superseding", "unpacked_limit_bytes")

    def __init__(self, start: int, fates: Fates, unpacked_limit_bytes: int) -> None:
        self.start = start
        self.fates = fates
        self.superseding = Superseding()
        self.unpacked_limit_bytes = unpacked_limit_bytes


def note_keys(keys: LastOffsets, header: BatchHeader, batch: Buffer, walk: KeyWalk) -> int | None:
    """Note the keys of a batch; the offset of the first for which there is no room, None if there is."""
    try:
        for key, offset in _keys_of(header, batch, walk):
            if offset < walk.start:
                continue
            if keys.is_full and keys.get(key) < 0:
                return offset
            keys.put(key, offset)
    except UNREADABLE:
        pass  # counted when it is copied
    return None


def _keys_of(header: BatchHeader, batch: Buffer, walk: KeyWalk) -> Iterator[tuple[bytes, int]]:
    """The keys in a batch that supersede earlier ones, with their offsets."""
    if header.is_control:
        check(header, batch)
        walk.fates.is_spent(header, marker_of(header, batch))
        return
    superseded = walk.fates.is_aborted(header)
    check(header, batch)
    if superseded or not header.count:
        return
    # The whole batch first: one that turns out to be unreadable halfway stays, and supersedes nothing.
    if header.attributes & PULSAR_ENTRY:
        yield from walk.superseding.keys(OpenEntry(header, batch, walk.unpacked_limit_bytes))
    else:
        spans = list(iter_spans(header, payload_of(header, batch, walk.unpacked_limit_bytes)))
        yield from ((span.key, span.offset) for span in spans if span.key is not None)
