"""Seam of history and log: a range of offsets as slices of a table's files, and a tail for the brokers.

    covered           [100 ------------------------- 900)
    files             [100 - 400) [400 -- 700)[700 - 900)
    asked        [0 ---------------------------------------- 1200)
    slices            [100 - 400) [400 -- 700)[700 - 900)
    tail                                             [900 - 1200)
    before       [0 - 100)

One snapshot decides for the whole query, so what is copied or merged while it runs changes nothing: no offset
is read twice and none is left out.  What lies before the table is the log's, if it still has it.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from anabranch.tables.snapshot import DataFile, Snapshot, Span


class Slice(NamedTuple):
    """The records of a file whose offsets are in `span`; all of them if `is_whole`.  Travels to executors."""

    file: DataFile
    span: Span

    @property
    def is_whole(self) -> bool:
        return self.span == self.file.span

    @property
    def plain_bytes(self) -> int:
        """Roughly what has to be read."""
        return self._share(self.file.plain_bytes)

    @property
    def rows(self) -> int:
        """Roughly how many: offsets have gaps, and nobody knows where."""
        return self._share(self.file.rows)

    def _share(self, of: int) -> int:
        return -(-of * self.span.size // max(1, self.file.span.size))

    def divided(self, count: int) -> list["Slice"]:
        """As `count` slices, if there are offsets enough."""
        count = max(1, min(count, self.span.size))
        edges = [self.span.start + self.span.size * number // count for number in range(count + 1)]
        return [self._replace(span=Span(start, end)) for start, end in pairwise(edges)]


class Cut(NamedTuple):
    before: Span
    slices: list[Slice]
    tail: Span
    lost: list[Span]


def cut(table: Snapshot, partition: int, asked: Span) -> Cut:
    """`asked`, offsets of `partition`, as parts of the table and what only the log has."""
    covered = table.covered.get(partition)
    if covered is None:
        return Cut(Span(asked.start, asked.start), [], asked, [])
    inside = asked.common(covered)
    slices = [
        Slice(file, part)
        for file in sorted(table.files, key=_by_offset)
        if file.partition == partition and (part := inside.common(file.span)).size
    ]
    lost = [
        part for one in table.lost if one.partition == partition and (part := inside.common(one.span)).size
    ]
    before = Span(asked.start, max(asked.start, min(asked.end, covered.start)))
    return Cut(before, slices, Span(max(asked.start, covered.end), asked.end), lost)


def _by_offset(file: DataFile) -> tuple[int, int]:
    return file.first, file.end


def in_time(slices: Iterable[Slice], since_ms: int | None, until_ms: int | None) -> list[Slice]:
    """Those that may hold records of these times, both inclusive."""
    return [
        one
        for one in slices
        if (since_ms is None or one.file.max_ms >= since_ms)
        and (until_ms is None or one.file.min_ms <= until_ms)
    ]


def packed(slices: Iterable[Slice], most_bytes: int) -> list[list[Slice]]:
    """Tasks of about `most_bytes` each, in order; one that is larger by itself is by itself."""
    tasks: list[list[Slice]] = []
    room = 0
    for one in slices:
        if not tasks or one.plain_bytes > room:
            tasks.append([])
            room = most_bytes
        tasks[-1].append(one)
        room -= one.plain_bytes
    return tasks
