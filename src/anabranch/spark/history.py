"""A topic's history and its log as one: files for what its table covers, the brokers for the rest.

A batch read asks, once, which of its topics have a table and takes that table's last snapshot.  From then on

    earliest          is where the table begins, if the log begins later
    a time            is looked for in the files, too
    a range           is cut where the table ends (`tables/seam`): slices of files, and ranges of the log

If the log begins after the table's end, either the maintainer was overtaken and records are gone, or it went
on while we looked: the table is read again before anybody says that something is lost.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from anabranch.base.errors import Unavailable
from anabranch.client.cluster import EARLIEST, LATEST, Cluster, Offsets
from anabranch.client.destinations import TopicPartition
from anabranch.client.group_offsets import committed_offsets
from anabranch.spark.ranges import Range
from anabranch.spark.table_settings import TableSettings, enabled_tables, group_of
from anabranch.tables.folder import TableFolder, check_owner
from anabranch.tables.seam import Slice, cut, in_time, packed
from anabranch.tables.snapshot import Snapshot, Span

_TASK_BYTES = 128 << 20


class Table(NamedTuple):
    settings: TableSettings
    snapshot: Snapshot


class Files(NamedTuple):
    """What one task reads of a table.  Travels to executors."""

    folder: str
    slices: list[Slice]

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        from anabranch.tables.scanning import read_slices

        return read_slices(Path(self.folder), self.slices, schema)


class Parts(NamedTuple):
    """Ranges of offsets, by who has them."""

    in_log: list[Range]
    in_files: dict[str, list[Slice]]
    """By topic."""
    lost: list[Range]


class History:
    """The tables of some topics, and the cluster that has the rest.  `offsets_at` is as of a cluster."""

    def __init__(self, cluster: Cluster, tables: Mapping[str, Table]) -> None:
        self._cluster = cluster
        self._tables = tables

    def offsets_at(self, times: Mapping[TopicPartition, int], *, committed: bool = False) -> Offsets:
        found = self._cluster.offsets_at(times, committed=committed)
        for one, time_ms in times.items():
            if one.topic in self._tables and time_ms != LATEST:
                found[one] = _earlier(self._first_in_files(one, time_ms, found[one]), found[one])
        return found

    def _first_in_files(self, one: TopicPartition, time_ms: int, in_log: int) -> int:
        """The first offset in files at or after a time, -1 if there is none before `in_log`."""
        settings, snapshot = self._tables[one.topic]
        covered = snapshot.covered.get(one.partition)
        if covered is None or not covered.size:
            return -1
        if time_ms == EARLIEST:
            return covered.start
        from anabranch.tables.scanning import first_offset_at

        best = in_log
        for file in sorted(snapshot.files, key=lambda file: file.first):
            if 0 <= best <= file.first:
                break
            if file.partition == one.partition and file.max_ms >= time_ms:
                best = _earlier(first_offset_at(settings.location, file, time_ms), best)
        return best

    def parts(self, ranges: Iterable[Range]) -> Parts:
        in_log: list[Range] = []
        in_files: dict[str, list[Slice]] = {}
        lost: list[Range] = []
        for one in ranges:
            table = self._tables.get(one.partition.topic)
            if table is None:
                in_log.append(one)
                continue
            found = cut(table.snapshot, one.partition.partition, Span(one.start, one.end))
            in_log += [one._replace(start=span.start, end=span.end) for span in (found.before, found.tail)]
            in_files.setdefault(one.partition.topic, []).extend(found.slices)
            lost += [one._replace(start=span.start, end=span.end) for span in found.lost]
        return Parts([one for one in in_log if one.size], in_files, lost)

    def folder(self, topic: str) -> Path:
        """Where the files of a topic's table are."""
        return self._tables[topic].settings.location

    def is_stale(self) -> bool:
        """Whether a table has changed since."""
        return any(
            (newest := TableFolder(table.settings.location).latest()) is None
            or newest.number != table.snapshot.number
            for table in self._tables.values()
        )

    def tasks(
        self,
        parts: Parts,
        times: tuple[int | None, int | None],
        least: int | None,
        most_records: int | None,
    ) -> list[Files]:
        """What is in files, for about `least` tasks or more, of about `most_records` each."""
        wanted = {topic: in_time(slices, *times) for topic, slices in parts.in_files.items()}
        total = sum(one.plain_bytes for slices in wanted.values() for one in slices)
        most_bytes = _TASK_BYTES if least is None else min(_TASK_BYTES, max(1, total // least))
        tasks = []
        for topic, slices in wanted.items():
            if most_records is not None:
                groups = [[part] for one in slices for part in one.divided(-(-one.rows // most_records))]
            elif least is not None:
                smaller = [part for one in slices for part in one.divided(-(-one.plain_bytes // most_bytes))]
                groups = packed(smaller, most_bytes)
            else:
                groups = packed(slices, most_bytes)
            tasks += [Files(str(self.folder(topic)), group) for group in groups]
        return tasks


def _earlier(one: int | None, other: int) -> int:
    """The smaller of two offsets, where -1 and None are none."""
    return min((offset for offset in (one, other) if offset is not None and offset >= 0), default=-1)


def open_history(cluster: Cluster, topics: Iterable[str]) -> History:
    """The tables of `topics`, as they are now."""
    tables = {}
    for settings in enabled_tables(cluster, topics):
        snapshot = TableFolder(settings.location).latest()
        if snapshot is None:
            _check_unbegun(cluster, settings)
            continue
        check_owner(snapshot, settings.topic, settings.topic_id, settings.location)
        tables[settings.topic] = Table(settings, snapshot)
    return History(cluster, tables)


def _check_unbegun(cluster: Cluster, settings: TableSettings) -> None:
    """Unavailable if there is a table, but not where we look: leaving history out would be silent loss."""
    begun = committed_offsets(cluster, group_of(settings.topic))
    if any(one.topic == settings.topic for one in begun):
        raise Unavailable(
            f"the table of topic {settings.topic!r} is in {settings.location}, which is not there or not to "
            'be reached from here. Set the option useTable to "false" to read what the log has'
        )
