"""Command output: JSON for programs, plain aligned tables for people."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

_GAP = "  "


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def readable(data: bytes | str | None) -> Any:
    """Bytes as JSON can hold them."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """One line per row under the names of the first row's keys; numbers to the right."""
    if not rows:
        return
    columns = list(rows[0])
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(columns)]
    numeric = [all(isinstance(row[name], int) for row in rows) for name in columns]
    for line in (columns, *cells):
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        print(_GAP.join(padded).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
