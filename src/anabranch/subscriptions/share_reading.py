"""A read of the log for a share group: batches by their headers, as far as they are needed.

    ┌───────┬──────────┬───────┬───────┐
    │ batch │ markers  │ batch │ batch │      headers are looked at; the bytes of those that were taken go
    └───────┴──────────┴───────┴───────┘      from the file to the socket
       take    nothing    take    not looked at

Small batches are looked at some at a time, large ones by their headers alone.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.base.network import Chunk, FileRange
from anabranch.log.transactions import AbortedTransaction
from anabranch.records.batch import HEADER_SIZE, BatchHeader, read_header
from anabranch.subscriptions.share_partition import Batch

_LOOK_BYTES = 4096


class _Place(NamedTuple):
    first: int
    end: int
    at: int
    """Where in the part it begins."""
    stop: int


class ShareRead:
    __slots__ = ("_aborted", "_part", "_places")

    def __init__(self, part: Chunk, aborted: Sequence[AbortedTransaction]) -> None:
        """`part` has whole batches; those of `aborted` transactions count as void."""
        self._part = part
        self._aborted = aborted
        self._places: list[_Place] = []

    def batches(self) -> Iterator[Batch]:
        for header, at in self._headers():
            end = header.last_offset + 1
            self._places.append(_Place(header.base_offset, end, at, at + header.size_bytes))
            yield Batch(header.base_offset, end, header.is_control or self._is_aborted(header))

    def bytes_of(self, first: int, last: int) -> Chunk:
        """The batches from the one that holds `first` to the one that holds `last`, which were looked at."""
        wanted = [place for place in self._places if place.end > first and place.first <= last]
        at, stop = wanted[0].at, wanted[-1].stop
        part = self._part
        if isinstance(part, FileRange):
            return FileRange(part.file, part.position + at, stop - at)
        return memoryview(part)[at:stop]

    def _headers(self) -> Iterator[tuple[BatchHeader, int]]:
        part = self._part
        if not isinstance(part, FileRange):
            at, size = 0, len(part)
            while at < size:
                header = read_header(part, at)
                yield header, at
                at += header.size_bytes
            return
        at, seen_at, seen = 0, 0, b""
        look_bytes = _LOOK_BYTES
        while at < part.size:
            if at + HEADER_SIZE > seen_at + len(seen):
                seen_at, seen = at, part.file.pread(min(look_bytes, part.size - at), part.position + at)
            header = read_header(seen, at - seen_at)
            yield header, at
            at += header.size_bytes
            look_bytes = _LOOK_BYTES if header.size_bytes < _LOOK_BYTES else HEADER_SIZE

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            gone.producer_id == header.producer_id
            and gone.first_offset <= header.base_offset <= gone.last_offset
            for gone in self._aborted
        )
