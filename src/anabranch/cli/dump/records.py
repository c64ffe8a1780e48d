"""The records of one batch, and whether they agree with its header."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.cli.dump.findings import Entry, Finding, Problem
from anabranch.cli.output import readable
from anabranch.records.batch import PULSAR_ENTRY, BatchHeader
from anabranch.records.control import read_marker
from anabranch.records.record import Record, iter_records, payload_of

MAX_PAYLOAD_BYTES = 256 << 20


def records_of(path: Path, position: int, header: BatchHeader, batch: bytes) -> Iterator[Finding]:
    """Every record of `batch`, which is whole and whose CRC holds."""
    if header.attributes & PULSAR_ENTRY:
        return
    latest_ms = -1
    try:
        for record in iter_records(header, payload_of(header, batch, MAX_PAYLOAD_BYTES)):
            yield Entry(path, "record", _values(header, record))
            latest_ms = max(latest_ms, record.timestamp)
    except AnabranchError as error:
        yield Problem(path, position, f"the records cannot be read: {error}")
        return
    if header.count and latest_ms != header.max_timestamp:
        said = f"the header says {header.max_timestamp}"
        yield Problem(path, position, f"the latest timestamp is {latest_ms}, {said}")


def _values(header: BatchHeader, record: Record) -> dict[str, Any]:
    values: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    marker = read_marker(record) if header.is_control else None
    if marker is not None:
        end = "commit" if marker.commit else "abort"
        return {**values, "control": end, "coordinator_epoch": marker.coordinator_epoch}
    values |= {"key": readable(record.key), "value": readable(record.value)}
    if record.headers:
        values["headers"] = [[readable(name), readable(value)] for name, value in record.headers]
    return values
