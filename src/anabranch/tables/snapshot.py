"""A snapshot of a table: which files hold which records of which topic.  What a manifest is made of.

    topic, topic_id    whose history it is; a topic that was deleted and made again is another one
    covered            for each partition the offsets [start, end) that the files stand for
    files              each with records of one partition and, except for `various`, of one hour
    lost               offsets in `covered` that the log dropped before they were copied
    dropped            files that count no more (merged or too old) but may still be read by running queries

Offsets have gaps, so a partition is covered to where it was read, not to the last record that was found.
Every record below `covered.end` is in exactly one file, or lost, or was never visible.  Files of a partition
overlap in offsets if the hours of records are out of order; their records do not.

As a file a snapshot is a line of JSON and a line with its CRC-32C: who finds both finds all of it.
"""

import re
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from anabranch.base.errors import Corrupt

FORMAT = 1
_CHECKSUM = re.compile(rb"\ncrc32c:([0-9a-f]{8})\n")
_CHECKSUM_BYTES = len("\ncrc32c:00000000\n")


class Span(NamedTuple):
    """Offsets, `end` exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def common(self, other: "Span") -> "Span":
        return Span(max(self.start, other.start), min(self.end, other.end))


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file.  `first` and `end` enclose its records' offsets, `min_ms` and `max_ms` their times."""

    path: str
    """Relative to the table's folder."""
    partition: int
    first: int
    end: int
    rows: int
    size_bytes: int
    """On disk."""
    plain_bytes: int
    """As rows in memory, which is what reading and writing it again costs."""
    min_ms: int
    max_ms: int
    layout: str
    """Stands for its columns and their types: files of different ones are not merged."""
    footer_crc: int
    """The CRC-32C of what the file says of itself, the one part that Parquet has no checksum for."""

    @property
    def span(self) -> Span:
        return Span(self.first, self.end)

    @property
    def hour(self) -> str:
        return PurePosixPath(self.path).parts[0]


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    start: int
    end: int
    noticed_ms: int

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    since_ms: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    number: int
    topic: str
    topic_id: str
    written_ms: int
    covered: dict[int, Span]
    files: list[DataFile] = []
    lost: list[Lost] = []
    dropped: list[Dropped] = []

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def encode(snapshot: Snapshot) -> bytes:
    text = msgspec.json.encode(snapshot)
    return b"%b\ncrc32c:%08x\n" % (text, crc32c(text))


_decoder = msgspec.json.Decoder(Snapshot)


def decode(data: bytes) -> Snapshot:
    """The snapshot in `data`.  Corrupt if it is not one, not whole, or speaks of files outside its folder."""
    text, tail = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    match = _CHECKSUM.fullmatch(tail)
    if match is None or int(match[1], 16) != crc32c(text):
        raise Corrupt("it does not have its checksum")
    try:
        snapshot = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise Corrupt(f"it is no snapshot: {error}") from error
    if snapshot.format != FORMAT:
        raise Corrupt(f"it has format {snapshot.format}, and only {FORMAT} can be read")
    for path in (*(one.path for one in snapshot.files), *(one.path for one in snapshot.dropped)):
        if not is_inside(path):
            raise Corrupt(f"it names the file {path!r}, which is not in its folder")
    return snapshot


def is_inside(path: str) -> bool:
    """Whether `path` is of a file in an hour's folder: nothing else is read, written or removed."""
    parts = path.split("/")
    return len(parts) == 2 and parts[0].startswith("hour=") and parts[1].endswith(".parquet")
