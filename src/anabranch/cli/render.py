"""A consumed record as a line: text with the columns asked for, or JSON.

    text   2026-01-31T12:00:00.000Z  0:41  kind=order  alice  {"n": 1}      (tab-separated)
    json   {"topic":"orders","partition":0,"offset":41,...,"key":"alice","value":"..."}

Bytes that are not UTF-8 stay bytes in text, and become {"base64": "..."} in JSON.
"""

from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from anabranch.cli.options import show_moment
from anabranch.cli.output import json_line, readable

_NULL = b"null"


class Columns(NamedTuple):
    timestamps: bool
    offsets: bool
    headers: bool
    keys: bool


def as_text(message: Message, columns: Columns) -> bytes:
    cells: list[bytes] = []
    if columns.timestamps:
        kind, timestamp_ms = message.timestamp()
        cells.append(b"-" if kind == TIMESTAMP_NOT_AVAILABLE else show_moment(timestamp_ms).encode())
    if columns.offsets:
        cells.append(f"{message.partition()}:{message.offset()}".encode())
    if columns.headers:
        pairs = message.headers() or []
        cells.append(b",".join(name.encode() + b"=" + _bytes(value) for name, value in pairs) or b"-")
    if columns.keys:
        cells.append(_bytes(message.key()))
    cells.append(_bytes(message.value()))
    return b"\t".join(cells) + b"\n"


def as_json(message: Message) -> bytes:
    kind, timestamp_ms = message.timestamp()
    line = json_line(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            "timestamp_type": "LogAppendTime" if kind == TIMESTAMP_LOG_APPEND_TIME else "CreateTime",
            "key": readable(message.key()),
            "value": readable(message.value()),
            "headers": [[name, readable(value)] for name, value in message.headers() or []],
        }
    )
    return line.encode() + b"\n"


def _bytes(data: bytes | str | None) -> bytes:
    if data is None:
        return _NULL
    return data.encode() if isinstance(data, str) else data
