"""Values that were read one by one, as a column: all at once, and only if one is in the way, one by one."""

from typing import Any

import pyarrow as pa

# What Arrow raises for a value that is none of the type: text that is not UTF-8, a number that is too large.
_REFUSALS = (pa.ArrowException, OverflowError, ValueError, TypeError)


def column_of(values: list[Any], type: pa.DataType, reasons: dict[int, str]) -> pa.Array:
    """`values` as Arrow has them, null where it does not take one; why is added to `reasons`, by row."""
    try:
        return pa.array(values, type)
    except _REFUSALS:
        pass
    found: list[pa.Array] = []
    for row, value in enumerate(values):
        try:
            found.append(pa.array([value], type))
        except _REFUSALS as error:
            reasons[row] = str(error)
            found.append(pa.nulls(1, type))
    return pa.concat_arrays(found)
