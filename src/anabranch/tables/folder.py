"""A table's folder: numbered snapshots, of which the last counts, and the files that they speak of.

    orders-Xk3…/
        _manifest/00000000000000000041.json
        _manifest/00000000000000000042.json          the last one: this is the table
        hour=2026-11-16-03/0-1200-1f0c….parquet

A snapshot comes in by a hard link to a file that is whole and on disk, which fails if its number is taken.
So of two who maintain one table, one wins each number, and the other is `Fenced` and reads the table again.
Files are written before the snapshot that names them: whoever dies in between leaves a file that nobody sees.

Numbers are never used again, though old snapshots are removed: one who was away for so long that its number
is free again finds a larger one in place, and is fenced as well.

A table begins with a snapshot that names no file, put into a folder in which nothing is: so the first topic
that claims a folder has it, and what others keep in one is neither mixed with a table nor taken for its own.
Only files whose names are of the form that ours have are ever removed.
"""

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from anabranch.base.errors import Corrupt, Fenced, Invalid, Unavailable
from anabranch.log.config_table import RETENTION
from anabranch.tables.snapshot import DataFile, Snapshot, decode, encode, is_inside

_NUMBERED = re.compile(r"(\d{20})\.json")
_OURS = re.compile(r"\d+-\d+-[0-9a-f]{32}\.parquet")
_LARGEST_SNAPSHOT_BYTES = 1 << 28
_KEPT = 3


class TableFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._manifest = path / "_manifest"

    def latest(self) -> Snapshot | None:
        """The table as it is, None if there is none yet.  Corrupt, with what to do, if it cannot be read."""
        for _ in range(10):
            numbers = self._numbers()
            if not numbers:
                return None
            try:
                return self._read(numbers[-1])
            except FileNotFoundError:
                continue  # so slow that it was replaced and removed meanwhile
        raise Unavailable(f"the snapshots of {self.path} come and go too fast to be read")

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._manifest)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Unavailable(f"the table in {self.path} cannot be read: {error}") from error
        return sorted(int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name)))

    def _read(self, number: int) -> Snapshot:
        place = self._place(number)
        try:
            with place.open("rb") as file:
                data = file.read(_LARGEST_SNAPSHOT_BYTES + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"{place} cannot be read: {error}") from error
        try:
            if len(data) > _LARGEST_SNAPSHOT_BYTES:
                raise Corrupt("it is too large")
            found = decode(data)
            if found.number != number:
                raise Corrupt(f"it is number {found.number}")
        except Corrupt as error:
            raise Corrupt(
                f"{place} is damaged: {error}. Without that file the table is as the one before it says"
            ) from error
        return found

    def put(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the table.  Fenced if somebody else has come before."""
        place = self._place(snapshot.number)
        beside = self._manifest / f".{uuid.uuid4().hex}"
        data = encode(snapshot)
        if len(data) > _LARGEST_SNAPSHOT_BYTES:
            raise Invalid(
                f"the table in {self.path} has {len(snapshot.files)} files, more than a snapshot can name. A "
                f"shorter {RETENTION.name} makes them fewer"
            )
        try:
            self._manifest.mkdir(parents=True, exist_ok=True)
            write_whole(beside, data)
            try:
                os.link(beside, place)
            except FileExistsError:
                raise Fenced(f"somebody else maintains the table in {self.path}") from None
            finally:
                beside.unlink()
            sync_folder(self._manifest)
        except OSError as error:
            raise Unavailable(f"the table in {self.path} cannot be written: {error}") from error
        numbers = self._numbers()
        if not numbers:
            raise Unavailable(f"the table in {self.path} was removed while it was written")
        if numbers[-1] != snapshot.number:
            place.unlink(missing_ok=True)
            raise Fenced(f"somebody else maintains the table in {self.path}, and is far ahead")

    def check_unused(self) -> None:
        """Invalid if something is in the folder, which has no snapshot: whatever that is, it is not ours."""
        try:
            there = [one for one in os.listdir(self.path) if not one.startswith(".")]
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unavailable(f"{self.path} cannot be read: {error}") from error
        if others := [one for one in there if one != self._manifest.name]:
            raise Invalid(
                f"{self.path} has no table, but {min(others)!r} is in it: a table begins in a folder of "
                "its own. Enable the table with another --location"
            )

    def check_there(self, files: Iterable[DataFile]) -> None:
        """Unavailable unless `files` are here, whole, whoever wrote them on whatever machine."""
        for file in files:
            place = self.path / file.path
            try:
                size = place.stat().st_size
                why = "" if size == file.size_bytes else f"it has {size} bytes, not {file.size_bytes}"
            except OSError as error:
                why = str(error)
            if why:
                raise Unavailable(
                    f"{place} was written, but who maintains the table does not see it ({why}). The folder "
                    "must be one that the driver and all executors of Spark have under the same name"
                )

    def _place(self, number: int) -> Path:
        return self._manifest / f"{number:020}.json"

    def remove_old_snapshots(self, before_s: float) -> None:
        """Remove those written before that time, except for the last few."""
        for number in self._numbers()[:-_KEPT]:
            place = self._place(number)
            if modified_s(place) < before_s:
                place.unlink(missing_ok=True)
        for beside in self._manifest.glob(".*"):
            if modified_s(beside) < before_s:
                beside.unlink(missing_ok=True)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            (self.path / path).unlink(missing_ok=True)

    def unknown_files(self, snapshot: Snapshot, before_s: float) -> list[str]:
        """Files older than that which `snapshot` does not know: of writers that died, or were fenced."""
        known = {one.path for one in snapshot.files} | {one.path for one in snapshot.dropped}
        return [path for path in self._data_files() if path not in known and self._older(path, before_s)]

    def _older(self, path: str, before_s: float) -> bool:
        return modified_s(self.path / path) < before_s

    def _data_files(self) -> Iterator[str]:
        for file in self.path.glob("hour=*/*.parquet"):
            path = file.relative_to(self.path).as_posix()
            if is_inside(path) and _OURS.fullmatch(file.name):
                yield path

    def remove_empty_hours(self) -> None:
        for hour in self.path.glob("hour=*"):
            try:
                hour.rmdir()
            except OSError:
                continue  # not empty, or a file is on its way into it


def check_owner(snapshot: Snapshot, topic: str, topic_id: str, path: Path) -> None:
    """Invalid unless the table is that topic's."""
    if snapshot.topic_id != topic_id:
        raise Invalid(
            f"{path} has the history of a topic {snapshot.topic!r} that is gone (id {snapshot.topic_id}), "
            f"not of {topic!r} as it is now (id {topic_id}). Enable the table with another --location"
        )


def check_place(path: Path, roots: Sequence[Path] | None) -> None:
    """Invalid unless `path` is in one of `roots`, wherever links lead; None is anywhere."""
    if roots is not None and not any(root.resolve() in path.resolve().parents for root in roots):
        raise Invalid(
            f"{path} is not where tables are allowed: in {' or '.join(map(str, roots)) or 'none'}. "
            "The broker's option anabranch.table.roots allows more; so does `anabranch table run --root DIR`"
        )


def modified_s(path: Path) -> float:
    """When `path` was written; never, if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def write_whole(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
