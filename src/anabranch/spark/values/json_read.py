"""JSON into columns: each value checked against its shape, a microsecond or so, then all of them to Arrow at
once."""

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.spark.values.json_types import Shape
from anabranch.spark.values.to_column import column_of


def reader_of(shape: Shape) -> Callable[[pa.BinaryArray], tuple[pa.Array, dict[int, str]]]:
    """What reads values of that shape: their column, and by row what is wrong with those that are none."""
    decoder = msgspec.json.Decoder(shape.checked)
    change = shape.to_arrow

    def read(values: pa.BinaryArray) -> tuple[pa.Array, dict[int, str]]:
        found: list[Any] = []
        reasons: dict[int, str] = {}
        add, decode = found.append, decoder.decode
        for row, value in enumerate(values.to_pylist()):
            try:
                one = decode(value)
                add(one if change is None or one is None else change(one))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                reasons[row] = str(error)
                add(None)
        return column_of(found, shape.type, reasons), reasons

    return read
