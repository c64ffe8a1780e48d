"""Values that are read one by one, as a column: many at once, and only if one is in the way, one by one.

As Python's objects values take a hundred times their bytes, and of repeated messages that are empty much
more: so not many bytes are objects at the same time.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

# What Arrow raises for a value that is none of the type: text that is not UTF-8, a number that is too large.
_REFUSALS = (pa.ArrowException, OverflowError, ValueError, TypeError)
_MOST_BYTES = 256 << 10

Refusals = tuple[type[Exception], ...]


def read_each(
    values: pa.BinaryArray, read: Callable[[bytes], Any], refusals: Refusals, type: pa.DataType
) -> tuple[pa.Array, dict[int, str]]:
    """What `read` makes of each value, and by row why it is none: one of `refusals` was raised."""
    reasons: dict[int, str] = {}
    done: list[pa.Array] = []
    found: list[Any] = []
    size = 0
    for row, value in enumerate(values.to_pylist()):
        try:
            found.append(read(value))
        except refusals as error:
            reasons[row] = str(error)
            found.append(None)
        size += len(value)
        if size > _MOST_BYTES:
            done.append(_column_of(found, type, row + 1 - len(found), reasons))
            found, size = [], 0
    if found or not done:
        done.append(_column_of(found, type, len(values) - len(found), reasons))
    return done[0] if len(done) == 1 else pa.concat_arrays(done), reasons


def _column_of(values: list[Any], type: pa.DataType, first: int, reasons: dict[int, str]) -> pa.Array:
    """`values`, the first of which is row `first`, as Arrow has them; null, with the reason, where not."""
    try:
        return pa.array(values, type)
    except _REFUSALS:
        pass
    found: list[pa.Array] = []
    for row, value in enumerate(values, first):
        try:
            found.append(pa.array([value], type))
        except _REFUSALS as error:
            reasons[row] = str(error)
            found.append(pa.nulls(1, type))
    return pa.concat_arrays(found)
