"""Index files against the log they index.

Both kinds are in the order of the log, so one pass over the segment checks them: whoever reads the
batches shows each of them to `OffsetEntries` and `TimeEntries`, which compare their next entry.

    .index      (relative offset, position)   the batch at `position` ends with that offset
    .timeindex  (timestamp, relative offset)  the batch that ends with that offset brought the latest
                                              timestamp of the segment up to there

A broker that runs Apache Kafka stretches the file of its active segment beforehand; the zeros at the
end are no entries.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from anabranch.cli.dump.findings import Entry, Finding, Problem
from anabranch.records.batch import BatchHeader

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
MAX_INDEX_BYTES = 256 << 20  # Kafka's default is 10 MiB


class IndexEntries:
    """The entries of an index file, in order; `problems` says what is wrong with the file itself."""

    layout: struct.Struct

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self._base_offset = base_offset
        self._data = self._read()
        self._at = 0

    def _read(self) -> bytes:
        size = self.path.stat().st_size
        if size > MAX_INDEX_BYTES:
            self.problems.append(Problem(self.path, None, f"{size} bytes are too many for an index"))
            return b""
        whole = self.path.read_bytes()
        used = whole.rstrip(b"\0")
        used_size = -(-len(used) // self.layout.size) * self.layout.size
        if used_size > len(whole) or (len(used) == len(whole) and len(whole) % self.layout.size):
            at = len(whole) // self.layout.size * self.layout.size
            self.problems.append(Problem(self.path, at, "the last entry is cut short"))
            used_size = at
        return whole[:used_size]

    @property
    def count(self) -> int:
        return len(self._data) // self.layout.size

    def _peek(self) -> tuple[int, int] | None:
        if self._at >= len(self._data):
            return None
        first, second = self.layout.unpack_from(self._data, self._at)
        return first, second

    def _problem(self, message: str) -> Problem:
        return Problem(self.path, self._at, message)

    def shown(self) -> Iterator[Finding]:
        """Every entry as it stands in the file."""
        raise NotImplementedError

    def check(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        """Compare with the next batch of the segment."""
        raise NotImplementedError

    def finish(self, log_size_bytes: int) -> Iterator[Finding]:
        """The segment has been read; entries that are left point nowhere."""
        if self._peek() is not None:
            left = (len(self._data) - self._at) // self.layout.size
            yield self._problem(f"{left} entries point beyond the log, which ends at byte {log_size_bytes}")


class OffsetEntries(IndexEntries):
    layout = OFFSET_ENTRY

    def shown(self) -> Iterator[Finding]:
        for relative, position in self.layout.iter_unpack(self._data):
            yield Entry(self.path, "index", {"offset": self._base_offset + relative, "position": position})

    def check(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        while (entry := self._peek()) is not None and entry[1] <= position:
            offset = self._base_offset + entry[0]
            if entry[1] < position:
                yield self._problem(f"offset {offset} points to byte {entry[1]}, where no batch begins")
            elif offset != header.last_offset:
                yield self._problem(
                    f"offset {offset} points to byte {position}, whose batch ends with {header.last_offset}"
                )
            self._at += self.layout.size


class TimeEntries(IndexEntries):
    layout = TIME_ENTRY

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, base_offset)
        self._latest_ms = -1
        self._previous_ms = -1

    def shown(self) -> Iterator[Finding]:
        for timestamp, relative in self.layout.iter_unpack(self._data):
            yield Entry(
                self.path, "timeindex", {"timestamp": timestamp, "offset": self._base_offset + relative}
            )

    def check(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        self._latest_ms = max(self._latest_ms, header.max_timestamp)
        while (entry := self._peek()) is not None and self._base_offset + entry[1] <= header.last_offset:
            timestamp, offset = entry[0], self._base_offset + entry[1]
            if offset != header.last_offset:
                yield self._problem(f"no batch ends with offset {offset}")
            elif timestamp != self._latest_ms:
                yield self._problem(
                    f"timestamp {timestamp} at offset {offset}, where the latest so far is {self._latest_ms}"
                )
            if timestamp < self._previous_ms:
                yield self._problem(f"timestamp {timestamp} follows the later {self._previous_ms}")
            self._previous_ms = timestamp
            self._at += self.layout.size
