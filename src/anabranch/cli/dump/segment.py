"""Segment check: a segment read from end to end, with nothing in it taken on trust.

Every batch is checked before the next is looked for: it fits into the file, is of magic 2, carries the
CRC of its bytes, and its offsets and leader epoch come after those before it.  After a length that
cannot be, there is no next batch, and the rest of the file is the problem.  A wrong CRC alone leaves the
length standing, so reading goes on.

Memory is bounded whatever a length claims: the CRC is taken in pieces, and records are decoded only from
a batch whose CRC holds.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from crc32c import crc32c

from anabranch.cli.dump.findings import Batch, FileDone, FileOpened, Finding, Problem
from anabranch.cli.dump.indexes import IndexEntries
from anabranch.cli.dump.records import records_of
from anabranch.records.batch import CRC_START, HEADER_SIZE, MAGIC, OVERHEAD, BatchHeader, read_header

_PIECE_BYTES = 1 << 20


class SegmentReader:
    """One pass over a segment.  After it, `end_offset` is where the next segment may begin."""

    def __init__(self, path: Path, base_offset: int, indexes: Sequence[IndexEntries] = ()) -> None:
        self._path = path
        self._indexes = indexes
        self._fd = -1
        self._size = 0
        self._epoch = -1
        self._batches = 0
        self._records = 0
        self.end_offset = base_offset

    def read(self, with_records: bool) -> Iterator[Finding]:
        with self._path.open("rb") as log:
            self._fd = log.fileno()
            self._size = os.fstat(self._fd).st_size
            yield FileOpened(self._path, self._size)
            position = 0
            while position < self._size:
                header = yield from self._header(position)
                if header is None:
                    break
                yield from self._batch(position, header, with_records)
                position += header.size_bytes
        yield FileDone(self._path, {"batches": self._batches, "records": self._records})
        for index in self._indexes:
            yield from index.problems
            yield from index.finish(position)

    def _header(self, position: int) -> Generator[Finding, None, BatchHeader | None]:
        """The header at `position`, or None if nothing can be read from there on."""
        left = self._size - position
        start = os.pread(self._fd, HEADER_SIZE, position)
        if len(start) < HEADER_SIZE:
            yield self._problem(position, f"torn: {left} bytes are left, a batch header needs {HEADER_SIZE}")
            return None
        header = read_header(start)
        if header.magic != MAGIC:
            yield self._problem(
                position, f"magic {header.magic} where {MAGIC} is due; {left} bytes cannot be read"
            )
            return None
        if header.length < HEADER_SIZE - OVERHEAD:
            yield self._problem(position, f"a length of {header.length}; {left} bytes cannot be read")
            return None
        if header.size_bytes > left:
            yield self._problem(
                position, f"torn: a batch of {header.size_bytes} bytes, of which {left} are there"
            )
            return None
        return header

    def _batch(self, position: int, header: BatchHeader, with_records: bool) -> Iterator[Finding]:
        yield Batch(self._path, position, header)
        crc = self._crc(position, header)
        if crc != header.crc:
            yield self._problem(position, f"the CRC says {header.crc:08x}, the bytes give {crc:08x}")
        yield from self._order(position, header)
        for index in self._indexes:
            yield from index.check(position, header)
        self._batches += 1
        self._records += max(header.count, 0)
        self.end_offset = max(self.end_offset, header.last_offset + 1)
        self._epoch = max(self._epoch, header.leader_epoch)
        if with_records and crc == header.crc:
            whole = os.pread(self._fd, header.size_bytes, position)
            yield from records_of(self._path, position, header, whole)

    def _crc(self, position: int, header: BatchHeader) -> int:
        at, end, crc = position + CRC_START, position + header.size_bytes, 0
        while at < end:
            piece = os.pread(self._fd, min(_PIECE_BYTES, end - at), at)
            if not piece:
                break  # cut off while we were reading; the CRC will not match
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc

    def _order(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        if header.base_offset < self.end_offset:
            yield self._problem(
                position, f"offset {header.base_offset} where {self.end_offset} is the least possible"
            )
        if header.last_offset_delta < 0 or not 0 <= header.count <= header.last_offset_delta + 1:
            yield self._problem(
                position, f"{header.count} records in {header.last_offset_delta + 1} offsets cannot be"
            )
        if header.leader_epoch < self._epoch:
            yield self._problem(position, f"leader epoch {header.leader_epoch} after {self._epoch}")

    def _problem(self, position: int, message: str) -> Problem:
        return Problem(self._path, position, message)
