"""Pulsar's schemas of one value: a number, text, bytes, a time; whole numbers are the highest byte first.

DATE and TIMESTAMP are milliseconds of a long.  Types that only Java's classes give a meaning to are not here.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from anabranch.spark.values.avro_types import TIMESTAMP
from anabranch.spark.values.cursor import Pieces, check_ends, cursor_of

_NUMBERS = {
    "INT8": (1, ">i1", pa.int8()),
    "INT16": (2, ">i2", pa.int16()),
    "INT32": (4, ">i4", pa.int32()),
    "INT64": (8, ">i8", pa.int64()),
    "FLOAT": (4, ">f4", pa.float32()),
    "DOUBLE": (8, ">f8", pa.float64()),
    "BOOLEAN": (1, "u1", pa.bool_()),
    "TIMESTAMP": (8, ">i8", TIMESTAMP),
    "DATE": (8, ">i8", TIMESTAMP),
}
TYPES: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "NONE": pa.binary(),
    **{name: type for name, (_, _, type) in _NUMBERS.items()},
}
_MOST_MS = (1 << 63) // 1000 - 1


def reader_of(kind: str) -> Callable[[Pieces], pa.Array]:
    """What reads values of the schema; what is wrong with a value is noted in the pieces."""
    if kind not in _NUMBERS:
        return _text if kind == "STRING" else _bytes
    size, layout, type = _NUMBERS[kind]

    def read(pieces: Pieces) -> pa.Array:
        cursor = cursor_of(pieces)
        found = cursor.fixed(size).view(layout).reshape(-1)
        check_ends(pieces, cursor)
        if type == TIMESTAMP:
            return pa.array(np.clip(found.astype(np.int64), -_MOST_MS, _MOST_MS) * 1000).view(type)
        return pa.array(found.astype(np.bool_ if kind == "BOOLEAN" else layout[1:]), type)

    return read


def _text(pieces: Pieces) -> pa.Array:
    cursor = cursor_of(pieces)
    return cursor.text(cursor.left())


def _bytes(pieces: Pieces) -> pa.Array:
    cursor = cursor_of(pieces)
    return cursor.pieces(cursor.left())
