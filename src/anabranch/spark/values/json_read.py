"""JSON into columns: each value checked against its shape, a microsecond or so, then many of them to Arrow at
once."""

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.spark.values.json_types import Shape
from anabranch.spark.values.to_column import read_each

_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def reader_of(shape: Shape) -> Callable[[pa.BinaryArray], tuple[pa.Array, dict[int, str]]]:
    """What reads values of that shape: their column, and by row what is wrong with those that are none."""
    decode = msgspec.json.Decoder(shape.checked).decode
    change = shape.to_arrow

    def changed(value: bytes) -> Any:
        one = decode(value)
        return one if one is None else change(one)  # type: ignore[misc]

    return lambda values: read_each(values, decode if change is None else changed, _REFUSALS, shape.type)
