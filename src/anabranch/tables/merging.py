"""File merging: small files of a partition and hour become one, when they are many or the hour is over.

Every round of the maintainer adds one file per partition and hour.  As soon as there are `MANY` small ones
they become one, which may still be small; when the hour is long over, so do those that are left.  A merged
file is not larger than a file gets when it is written at once.

A file is merged with those after it only if they hold as much as it does: so each record is rewritten a few
times only, even if records of an hour that is over keep coming in.
"""

from datetime import UTC, datetime, timedelta

from anabranch.tables.snapshot import DataFile, Snapshot

MANY = 12
FILE_BYTES = 128 << 20
"""Of rows, as they are in memory: what one task reads."""
VARIOUS = "hour=various"
"""For records whose times are too far from each other, or no times that a calendar has."""
_SMALL_BYTES = FILE_BYTES // 2
_LATE = timedelta(minutes=10)
_FORM = "hour=%Y-%m-%d-%H"


def hour_name(hours: int) -> str:
    """The folder of the hour that began so many hours after 1970."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hours)).strftime(_FORM)


def is_over(hour: str, now: datetime) -> bool:
    try:
        began = datetime.strptime(hour, _FORM).replace(tzinfo=UTC)
    except ValueError:
        return False
    return began + timedelta(hours=1) + _LATE < now


def to_merge(table: Snapshot, now: datetime, many: int = MANY) -> list[list[DataFile]]:
    """Groups of files, each in order of offsets, that should become one file each."""
    places: dict[tuple[int, str, str], list[DataFile]] = {}
    for file in sorted(table.files, key=lambda file: file.first):
        if file.plain_bytes < _SMALL_BYTES:
            places.setdefault((file.partition, file.hour, file.layout), []).append(file)
    groups = []
    for (_, hour, _), files in sorted(places.items()):
        enough = 2 if is_over(hour, now) else many
        if len(files) >= enough:
            groups.append(_that_fit(_worth_it(files)))
    return [group for group in groups if len(group) > 1]


def _worth_it(files: list[DataFile]) -> list[DataFile]:
    """The last of `files`, from the first on that is not larger than all after it."""
    after = sum(file.plain_bytes for file in files)
    for count, file in enumerate(files):
        after -= file.plain_bytes
        if file.plain_bytes <= after:
            return files[count:]
    return []


def _that_fit(files: list[DataFile]) -> list[DataFile]:
    total = 0
    for count, file in enumerate(files):
        total += file.plain_bytes
        if total > FILE_BYTES:
            return files[:count]
    return files
