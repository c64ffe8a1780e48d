"""A consumed record as a line: text with the columns asked for, or JSON.

    text   2026-01-31T12:00:00.000Z  0:41  kind=order  alice  {"n": 1}      (tab-separated)
    json   {"topic":"orders","partition":0,"offset":41,...,"key":"alice","value":"..."}

Bytes that are not UTF-8 stay bytes in text, and become {"base64": "..."} in JSON.
"""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.cli.options import show_moment
from anabranch.cli.output import json_line, readable

_NULL = b"null"

Text = bytes | str


class Shown(NamedTuple):
    """A record, or a Pulsar message, as it is shown."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    is_append_time: bool
    key: Text | None
    value: Text | None
    headers: Sequence[tuple[str, Text | None]]


class Columns(NamedTuple):
    timestamps: bool
    offsets: bool
    headers: bool
    keys: bool


def as_text(record: Shown, columns: Columns) -> bytes:
    cells: list[bytes] = []
    if columns.timestamps:
        cells.append(b"-" if record.timestamp_ms is None else show_moment(record.timestamp_ms).encode())
    if columns.offsets:
        cells.append(f"{record.partition}:{record.offset}".encode())
    if columns.headers:
        cells.append(
            b",".join(name.encode() + b"=" + _bytes(value) for name, value in record.headers) or b"-"
        )
    if columns.keys:
        cells.append(_bytes(record.key))
    cells.append(_bytes(record.value))
    return b"\t".join(cells) + b"\n"


def as_json(record: Shown) -> bytes:
    line = json_line(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": "LogAppendTime" if record.is_append_time else "CreateTime",
            "key": readable(record.key),
            "value": readable(record.value),
            "headers": [[name, readable(value)] for name, value in record.headers],
        }
    )
    return line.encode() + b"\n"


def _bytes(data: Text | None) -> bytes:
    if data is None:
        return _NULL
    return data.encode() if isinstance(data, str) else data
