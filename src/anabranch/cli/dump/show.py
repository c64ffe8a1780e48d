"""Findings as lines: for people, or a JSON object each for programs.

orders-0/00000000000000000000.log  1,338 bytes
  @0  offsets 0..9  10 records  lz4  223 bytes  epoch 0  2026-01-31T12:00:00.000Z
    offset 0  timestamp ...  key "a"  value "..."
  PROBLEM at byte 223: the CRC says 00000000, the bytes give 5d1c02aa
  2 batches, 20 records
"""

from collections.abc import Iterator
from typing import Any

from anabranch.cli.dump.findings import Batch, Entry, FileDone, FileOpened, Finding, Problem
from anabranch.cli.options import show_moment
from anabranch.cli.output import json_line
from anabranch.records.batch import LOG_APPEND_TIME, PULSAR_ENTRY, BatchHeader
from anabranch.records.compression import NAMES


def as_text(finding: Finding, summary_only: bool) -> Iterator[str]:
    match finding:
        case FileOpened(path, size_bytes):
            yield f"{path.parent.name}/{path.name}  {size_bytes:,} bytes"
        case Batch(_, position, header) if not summary_only:
            yield f"  @{position}  {_batch_in_words(header)}"
        case Entry(_, kind, values) if not summary_only:
            indent = "    " if kind == "record" else "  "
            yield indent + "  ".join(f"{name} {_in_words(name, value)}" for name, value in values.items())
        case Problem(path, position, message):
            where = f" at byte {position}" if position is not None else ""
            yield f"  PROBLEM in {path.name}{where}: {message}"
        case FileDone(_, counts) if counts:
            yield "  " + ", ".join(f"{count:,} {what}" for what, count in counts.items())


def as_json(finding: Finding, summary_only: bool) -> Iterator[str]:
    match finding:
        case Batch(path, position, header) if not summary_only:
            yield json_line(
                {"type": "batch", "path": str(path), "position": position, **_batch_values(header)}
            )
        case Entry(path, kind, values) if not summary_only:
            yield json_line({"type": kind, "path": str(path), **values})
        case Problem(path, position, message):
            yield json_line({"type": "problem", "path": str(path), "position": position, "message": message})
        case FileDone(path, counts):
            yield json_line({"type": "file", "path": str(path), **counts})


def _codec(header: BatchHeader) -> str:
    return NAMES[header.codec] if header.codec < len(NAMES) else f"codec {header.codec}"


def _batch_in_words(header: BatchHeader) -> str:
    words = [
        f"offsets {header.base_offset}..{header.last_offset}",
        "1 record" if header.count == 1 else f"{header.count} records",
        _codec(header),
        f"{header.size_bytes:,} bytes",
        f"epoch {header.leader_epoch}",
        show_moment(header.max_timestamp),
    ]
    if header.producer_id >= 0:
        words.append(f"producer {header.producer_id}/{header.producer_epoch}")
        if header.base_sequence >= 0:
            words.append(f"sequence {header.base_sequence}..{header.last_sequence}")
    flags = {
        "append time": header.attributes & LOG_APPEND_TIME,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "pulsar": header.attributes & PULSAR_ENTRY,
    }
    return "  ".join([*words, *(name for name, is_set in flags.items() if is_set)])


def _batch_values(header: BatchHeader) -> dict[str, Any]:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "size_bytes": header.size_bytes,
        "codec": _codec(header),
        "crc": header.crc,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }


def _in_words(name: str, value: Any) -> str:
    if name == "timestamp" and isinstance(value, int):
        return show_moment(value)
    return json_line(value) if isinstance(value, str | list | dict) or value is None else str(value)
