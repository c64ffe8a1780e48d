"""Snapshot changes: each makes a table's next snapshot from the last, and none touches a disk.

    begun        a new table, which covers nothing yet
    appended     offsets were read on from where the table ends: files, and what was lost before them
    merged       some files were written again as fewer
    expired      the beginning, where it is older than the table keeps it, is dropped
    swept        dropped files are gone from the disk

`appended` only takes what begins where the table ends.  A copy that was made twice, by one that was slow or
by two at once, does not fit the second time, and is refused instead of counted twice.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from anabranch.base.errors import Fenced
from anabranch.tables.snapshot import DataFile, Dropped, Lost, Snapshot, Span


class Copied(NamedTuple):
    """Offsets of a partition that were read, all of them, and the files that hold what was found."""

    partition: int
    span: Span
    files: tuple[DataFile, ...]


def begun(topic: str, topic_id: str, now_ms: int) -> Snapshot:
    return Snapshot(number=0, topic=topic, topic_id=topic_id, written_ms=now_ms, covered={})


def appended(table: Snapshot, copied: Sequence[Copied], lost: Mapping[int, Span], now_ms: int) -> Snapshot:
    """The table with what was `copied`; `lost` lies between its end and that."""
    covered = dict(table.covered)
    missing = list(table.lost)
    files = list(table.files)
    for partition, span in sorted(lost.items()):
        covered[partition] = _joined(covered, partition, span)
        missing = _noted(
            missing, Lost(partition=partition, start=span.start, end=span.end, noticed_ms=now_ms)
        )
    for one in copied:
        covered[one.partition] = _joined(covered, one.partition, one.span)
        assert all(_fits(file, one) for file in one.files)
        files += one.files
    return _next(table, now_ms, covered=covered, files=files, lost=missing)


def _noted(before: list[Lost], new: Lost) -> list[Lost]:
    """With `new`; as one, where it goes on from another, or they would grow without end."""
    for one in before:
        if one.partition == new.partition and one.end == new.start:
            joined = msgspec.structs.replace(new, start=one.start)
            return [joined if other is one else other for other in before]
    return [*before, new]


def _joined(covered: Mapping[int, Span], partition: int, span: Span) -> Span:
    before = covered.get(partition, Span(span.start, span.start))
    if before.end != span.start:
        raise Fenced(f"partition {partition} is covered to offset {before.end}, not to {span.start}")
    return Span(before.start, span.end)


def _fits(file: DataFile, copied: Copied) -> bool:
    inside = copied.span.start <= file.first < file.end <= copied.span.end
    return inside and file.partition == copied.partition and file.rows > 0


def merged(table: Snapshot, old: Collection[str], new: Sequence[DataFile], now_ms: int) -> Snapshot:
    """The table with the files `new` for those of the paths `old`, which must be there and hold as much."""
    there = {file.path: file for file in table.files}
    if not all(path in there for path in old):
        raise Fenced("files that were merged are not in the table any more")
    if sum(there[path].rows for path in old) != sum(file.rows for file in new):
        raise Fenced("files that were merged do not hold what the table had")
    files = [file for file in table.files if file.path not in old]
    return _next(table, now_ms, files=[*files, *new], dropped=[*table.dropped, *_dropped(old, now_ms)])


def expired(table: Snapshot, before_ms: int, now_ms: int) -> Snapshot | None:
    """The table from where records are not all of times before that; None if that is where it begins.

    A partition loses offsets from its beginning only, so that what is gone is what lies before `covered`.
    """
    covered = dict(table.covered)
    for partition, span in table.covered.items():
        mine = [file for file in table.files if file.partition == partition]
        covered[partition] = Span(_young_from(mine, before_ms, now_ms, span.end), span.end)
    old = {file.path for file in table.files if file.end <= covered[file.partition].start}
    if not old:
        return None
    touched = {file.partition for file in table.files if file.path in old}
    covered = {at: covered[at] if at in touched else span for at, span in table.covered.items()}
    return _next(
        table,
        now_ms,
        covered=covered,
        files=[file for file in table.files if file.path not in old],
        lost=[one for one in table.lost if one.end > covered[one.partition].start],
        dropped=[*table.dropped, *_dropped(old, now_ms)],
    )


def _young_from(files: Sequence[DataFile], before_ms: int, now_ms: int, end: int) -> int:
    """The first offset that may be of a record that is not old, among `files` of a partition that ends there.

    A time that is still to come says nothing of a record's age: such a file is as old as what came after it.
    Else one wrong clock would keep a table for good.
    """
    young = min((file.first for file in files if before_ms <= file.max_ms <= now_ms), default=end)
    old_to = max((file.first for file in files if file.max_ms < before_ms and file.end <= young), default=0)
    unsure = (file.first for file in files if file.max_ms > now_ms and file.end > old_to)
    # A file that began before and is kept, since others of its records are young, keeps its offsets with it.
    start = min(young, min(unsure, default=end))
    while kept := [file.first for file in files if file.first < start < file.end]:
        start = min(kept)
    return start


def to_sweep(table: Snapshot, before_ms: int) -> list[str]:
    """Dropped files that nobody should be reading any more."""
    return [one.path for one in table.dropped if one.since_ms < before_ms]


def swept(table: Snapshot, gone: Collection[str], now_ms: int) -> Snapshot:
    return _next(table, now_ms, dropped=[one for one in table.dropped if one.path not in gone])


def _dropped(paths: Collection[str], now_ms: int) -> list[Dropped]:
    return [Dropped(path=path, since_ms=now_ms) for path in sorted(paths)]


def _next(table: Snapshot, now_ms: int, **changed: object) -> Snapshot:
    return msgspec.structs.replace(table, number=table.number + 1, written_ms=now_ms, **changed)
