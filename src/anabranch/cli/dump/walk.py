"""Dump walk: which files to look into and in which order, of a partition's folder or all below a folder.

In a folder the segments come first, each with its indexes checked against it, then the small files;
a segment must begin where the one before it ended or later.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from anabranch.cli.dump.findings import FileDone, FileOpened, Finding, Problem
from anabranch.cli.dump.indexes import IndexEntries, OffsetEntries, TimeEntries
from anabranch.cli.dump.segment import SegmentReader
from anabranch.cli.dump.small_files import read_aborted, read_epochs, read_metadata, read_snapshot
from anabranch.cli.failure import Misuse
from anabranch.log import paths

_INDEXES: dict[str, type[IndexEntries]] = {paths.OFFSET_INDEX: OffsetEntries, paths.TIME_INDEX: TimeEntries}
_SMALL_BY_SUFFIX: dict[str, Callable[[Path], Iterator[Finding]]] = {
    paths.SNAPSHOT: read_snapshot,
    paths.TXN_INDEX: read_aborted,
}
_SMALL_BY_NAME: dict[str, Callable[[Path], Iterator[Finding]]] = {
    paths.LEADER_EPOCHS: read_epochs,
    paths.PARTITION_METADATA: read_metadata,
}


def look_through(path: Path, with_records: bool) -> Iterator[Finding]:
    """Everything found at `path`.  Misuse if there is nothing of a log there."""
    if not path.exists():
        raise Misuse(f"{path} is not there")
    if not path.is_dir():
        yield from _file(path, with_records)
        return
    folders = [
        folder for folder in (path, *sorted(path.rglob("*"))) if folder.is_dir() and _holds_segments(folder)
    ]
    if not folders:
        raise Misuse(
            f"{path} holds no log", "give a partition's folder, a data folder, or one of their files"
        )
    for folder in folders:
        yield from _partition(folder, with_records)


def _holds_segments(folder: Path) -> bool:
    return any(paths.base_offset_of(file.name) is not None for file in folder.glob("*" + paths.LOG))


def _partition(folder: Path, with_records: bool) -> Iterator[Finding]:
    logs = sorted(
        file for file in folder.glob("*" + paths.LOG) if paths.base_offset_of(file.name) is not None
    )
    end_offset = 0
    for log in logs:
        base_offset = _base_offset(log)
        if base_offset < end_offset:
            yield Problem(log, None, f"begins at {base_offset}, the segment before it ends at {end_offset}")
        indexes = _indexes_beside(log)
        reader = SegmentReader(log, base_offset, indexes)
        yield from reader.read(with_records)
        for index in indexes:
            yield from _shown(index)
        end_offset = reader.end_offset
    for file in sorted(folder.iterdir()):
        small = _SMALL_BY_NAME.get(file.name) or _SMALL_BY_SUFFIX.get(file.suffix)
        if small is not None:
            yield from small(file)


def _file(path: Path, with_records: bool) -> Iterator[Finding]:
    small = _SMALL_BY_NAME.get(path.name) or _SMALL_BY_SUFFIX.get(path.suffix)
    if small is not None:
        yield from small(path)
    elif path.suffix == paths.LOG:
        yield from SegmentReader(path, _base_offset(path)).read(with_records)
    elif path.suffix in _INDEXES:
        yield from _index_alone(_INDEXES[path.suffix](path, _base_offset(path)))
    else:
        raise Misuse(f"{path} is not a file of a log", "those end in .log, .index, .timeindex or .snapshot")


def _index_alone(index: IndexEntries) -> Iterator[Finding]:
    """An index, checked against its segment if that is beside it."""
    yield from _shown(index)
    log = index.path.with_suffix(paths.LOG)
    if not log.exists():
        yield from index.problems
        return
    for finding in SegmentReader(log, _base_offset(log), [index]).read(with_records=False):
        if isinstance(finding, Problem) and finding.path == index.path:
            yield finding


def _shown(index: IndexEntries) -> Iterator[Finding]:
    yield FileOpened(index.path, index.path.stat().st_size)
    yield from index.shown()
    yield FileDone(index.path, {"entries": index.count})


def _indexes_beside(log: Path) -> list[IndexEntries]:
    beside = ((log.with_suffix(suffix), kind) for suffix, kind in _INDEXES.items())
    return [kind(path, _base_offset(path)) for path, kind in beside if path.exists()]


def _base_offset(path: Path) -> int:
    base_offset = paths.base_offset_of(path.name)
    if base_offset is None:
        raise Misuse(f"{path.name} does not begin with an offset of 20 digits")
    return base_offset
