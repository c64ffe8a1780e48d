"""Tables as the command line shows them: from their snapshots, and from what the brokers say of the logs.

Loaded by the commands that need it: it brings Kafka's protocol along, which `anabranch --help` does not need.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from anabranch.base.errors import AnabranchError
from anabranch.cli.failure import CommandError
from anabranch.cli.options import show_moment
from anabranch.client.cluster import EARLIEST, LATEST, Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.group_offsets import committed_offsets
from anabranch.pipelines.tables.progress import problem_of
from anabranch.spark.table_settings import TableSettings, enabled_tables, group_of
from anabranch.tables.folder import TableFolder, check_owner
from anabranch.tables.snapshot import Snapshot, Span

_NOTHING = Span(0, 0)
Row = dict[str, Any]


@contextmanager
def _in_own_words() -> Iterator[None]:
    """What is wrong with a table is said as it is, and ends the command."""
    try:
        yield
    except AnabranchError as error:
        raise CommandError(str(error)) from error


def place_in(root: Path, topic: str, cluster: Cluster) -> Path:
    """Where a topic's table goes.  One that is deleted and made again is another one, with another table."""
    return root / f"{quote(topic, safe='')}-{cluster.topic_ids([topic])[topic]}"


def check_move(topic: str, present: Path | None, wanted: Path) -> None:
    """CommandError if a table that has begun would be left behind."""
    if present is None or present == wanted:
        return
    try:
        table = TableFolder(present).latest()
    except AnabranchError as error:
        raise CommandError(str(error)) from error
    if table is not None and table.files:
        raise CommandError(
            f"{topic} has a table with {table.rows} records in {present}",
            f"move that folder to {wanted} first, or enable it without --location",
        )


def summaries(cluster: Cluster) -> list[Row]:
    """One row per table.  What is wrong with one is said there, and hides none of the others."""
    with _in_own_words():
        return [_summary(one, cluster) for one in enabled_tables(cluster, cluster.topics(), must_know=False)]


def _summary(settings: TableSettings, cluster: Cluster) -> Row:
    try:
        table, problem = _table(settings), ""
    except AnabranchError as error:
        table, problem = None, str(error)
    return {
        "topic": settings.topic,
        "files": 0 if table is None else len(table.files),
        "rows": 0 if table is None else table.rows,
        "bytes": 0 if table is None else table.size_bytes,
        "lag": sum(one["lag"] for one in _partitions(settings.topic, table, cluster)),
        "location": str(settings.location),
        "problem": problem or _told(settings.topic, cluster),
    }


def _table(settings: TableSettings) -> Snapshot | None:
    folder = TableFolder(settings.location)
    table = folder.latest()
    if table is None:
        folder.check_unused()
    else:
        check_owner(table, settings.topic, settings.topic_id, settings.location)
    return table


def _told(topic: str, cluster: Cluster) -> str:
    """What the maintainer says is wrong."""
    told = committed_offsets(cluster, group_of(topic))
    problems = (one.metadata for place, one in told.items() if place.topic == topic and one.metadata)
    return next(problems, "") or problem_of(topic, cluster)


def _partitions(topic: str, table: Snapshot | None, cluster: Cluster) -> list[Row]:
    there = cluster.partitions([topic])
    earliest = cluster.offsets_at(dict.fromkeys(there, EARLIEST))
    latest = cluster.offsets_at(dict.fromkeys(there, LATEST), committed=True)
    return [_partition(one, table, Span(earliest[one], latest[one])) for one in there]


def _partition(one: TopicPartition, table: Snapshot | None, log: Span) -> Row:
    covered = _NOTHING if table is None else table.covered.get(one.partition, _NOTHING)
    files = [] if table is None else [file for file in table.files if file.partition == one.partition]
    missing = [] if table is None else [lost for lost in table.lost if lost.partition == one.partition]
    return {
        "partition": one.partition,
        "files": len(files),
        "rows": sum(file.rows for file in files),
        "from": covered.start,
        "to": covered.end,
        "log from": log.start,
        "log to": log.end,
        "lag": max(0, log.end - max(covered.end, log.start)),
        "lost": sum(lost.span.size for lost in missing),
    }


def description(topic: str, cluster: Cluster) -> tuple[Row, list[Row], list[Row]]:
    """A table as a whole, its partitions, and its files."""
    with _in_own_words():
        settings = next(iter(enabled_tables(cluster, [topic])), None)
        if settings is None:
            raise CommandError(
                f"{topic} is not kept as a table", f"`anabranch table enable {topic}` changes that"
            )
        table = _table(settings)
        whole = {
            "topic": topic,
            "location": str(settings.location),
            "snapshot": 0 if table is None else table.number,
            "written": "not yet" if table is None else show_moment(table.written_ms),
            "files": 0 if table is None else len(table.files),
            "rows": 0 if table is None else table.rows,
            "bytes": 0 if table is None else table.size_bytes,
            "problem": _told(topic, cluster) or "none",
        }
        return whole, _partitions(topic, table, cluster), _files(settings, table)


def _files(settings: TableSettings, table: Snapshot | None) -> list[Row]:
    return [
        {
            "path": str(settings.location / file.path),
            "partition": file.partition,
            "first": file.first,
            "end": file.end,
            "rows": file.rows,
            "bytes": file.size_bytes,
            "earliest": show_moment(file.min_ms),
            "latest": show_moment(file.max_ms),
        }
        for file in ([] if table is None else table.files)
    ]
