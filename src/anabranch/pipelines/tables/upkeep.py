"""Table upkeep: unused files removed, old ones expired, small ones merged.

A file is removed when it was dropped so long ago that no query can be reading it (the topic's option
anabranch.table.file.delete.delay.ms), or if no snapshot has ever known it and it is so old that nobody can be
about to commit it.  Nothing is removed from a folder that is not this topic's table.

Removing comes first, since it also helps where there is no room left.  Files that cannot be merged stay as
they are, are left alone for a while, and keep nothing else from being done.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from anabranch.base.errors import AnabranchError, Unavailable
from anabranch.pipelines.tables.copying import Done, Merge
from anabranch.pipelines.tables.patience import Patience
from anabranch.spark.table_settings import TableSettings
from anabranch.tables.changes import expired, merged, swept, to_sweep
from anabranch.tables.folder import TableFolder, check_owner
from anabranch.tables.merging import to_merge
from anabranch.tables.snapshot import DataFile, Snapshot

_log = logging.getLogger(__name__)

_UNKNOWN_MS = 6 * 3_600_000
_LOOK_EVERY_MS = 600_000
Merges = Callable[[Sequence[Merge]], list[Done]]
_Place = tuple[Path, int, str]


class Upkeep:
    def __init__(self, merge: Merges) -> None:
        self._merge_files = merge
        self._looked_ms: dict[Path, int] = {}
        self._patience = Patience()

    def tidy(self, settings: TableSettings, now_ms: int) -> None:
        """Fenced if somebody else changes the table meanwhile; the next round tries again."""
        folder = TableFolder(settings.location)
        table = folder.latest()
        if table is None:
            return
        check_owner(table, settings.topic, settings.topic_id, settings.location)
        if now_ms - self._looked_ms.get(folder.path, 0) >= _LOOK_EVERY_MS:
            self._looked_ms[folder.path] = now_ms
            _look_around(folder, table, settings.delete_delay_ms, now_ms)
        if gone := to_sweep(table, now_ms - settings.delete_delay_ms):
            folder.remove(gone)
            table = swept(table, gone, now_ms)
            folder.put(table)
        if settings.retention_ms >= 0:
            younger = expired(table, now_ms - settings.retention_ms, now_ms)
            if younger is not None:
                folder.put(younger)
                table = younger
        self._merge(folder, table, now_ms)

    def _merge(self, folder: TableFolder, table: Snapshot, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        groups = {_place(folder.path, group[0]): group for group in to_merge(table, now)}
        groups = {at: group for at, group in groups.items() if not self._patience.problem(at, now_ms)}
        if not groups:
            return
        problems = []
        for done in self._merge_files([Merge(str(folder.path), group) for group in groups.values()]):
            place = next(at for at, group in groups.items() if [file.path for file in group] == done.merged)
            try:
                if done.error:
                    raise Unavailable(done.error)
                folder.check_there(done.files)
                after = merged(table, set(done.merged), done.files, now_ms)
            except AnabranchError as error:
                self._patience.failed(place, str(error), now_ms)
                problems.append(str(error))
                continue
            folder.put(after)
            table = after
            self._patience.worked(place)
        if problems:
            raise Unavailable(f"files could not be merged: {problems[0]}")


def _place(folder: Path, file: DataFile) -> _Place:
    return folder, file.partition, f"{file.hour} {file.layout}"


def _look_around(folder: TableFolder, table: Snapshot, delay_ms: int, now_ms: int) -> None:
    folder.remove(folder.unknown_files(table, (now_ms - max(delay_ms, _UNKNOWN_MS)) / 1000))
    folder.remove_empty_hours()
    folder.remove_old_snapshots((now_ms - delay_ms) / 1000)
