"""Tables in memory: files without bytes, snapshots without folders."""

from pathlib import Path
from typing import Any

from anabranch.tables.snapshot import DataFile, Snapshot, Span

HOUR_MS = 3_600_000


def data_file(partition: int = 0, first: int = 0, end: int = 10, **other: Any) -> DataFile:
    hour = other.pop("hour", "hour=2026-11-16-03")
    given = {
        "path": f"{hour}/{partition}-{first}-{end}.parquet",
        "rows": end - first,
        "size_bytes": 500,
        "plain_bytes": 1000,
        "min_ms": first,
        "max_ms": end - 1,
        "layout": "",
        "footer_crc": 0,
        **other,
    }
    return DataFile(partition=partition, first=first, end=end, **given)


def laid_down(folder: Path | str, file: DataFile) -> DataFile:
    """`file`, as large as it says, with nothing in it."""
    place = Path(folder) / file.path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bytes(file.size_bytes))
    return file


def snapshot(*files: DataFile, **other: Any) -> Snapshot:
    covered: dict[int, Span] = {}
    for file in files:
        before = covered.get(file.partition, file.span)
        covered[file.partition] = Span(min(before.start, file.first), max(before.end, file.end))
    given = {"number": 1, "covered": covered, **other}
    return Snapshot(topic="orders", topic_id="an id", written_ms=1, files=list(files), **given)
