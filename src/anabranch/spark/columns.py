"""Records as rows: the columns of `column_types`, made of the fields that `decode` found.

What Pulsar's clients see beside that is in `pulsar_columns`, what schemas make of keys and values in
`values`.  A column that is not asked for is not made, so a reader with a schema of fewer columns is quicker.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anabranch.spark import pulsar_columns
from anabranch.spark.column_types import PULSARS, TIMESTAMP
from anabranch.spark.decode import Fields, cut, headers_column

if TYPE_CHECKING:
    from anabranch.spark.values.typed import Typed

DELETES = "_deletes"
"""Whether a record deletes its key: no column of a query, but of what compacted reads look at first."""

_MOST_MS = (1 << 63) // 1000 - 1

_Make = Callable[[Fields, str, int], pa.Array]


def _timestamp(fields: Fields, topic: str, partition: int) -> pa.Array:
    micros = np.clip(fields.timestamps, -_MOST_MS, _MOST_MS) * 1000
    return pa.array(micros, pa.int64()).view(TIMESTAMP)


_MAKE: dict[str, _Make] = {
    "key": lambda fields, topic, partition: cut(fields.data, fields.key_starts, fields.key_sizes),
    "value": lambda fields, topic, partition: cut(fields.data, fields.value_starts, fields.value_sizes),
    "topic": lambda fields, topic, partition: pa.repeat(pa.scalar(topic, pa.string()), len(fields)),
    "partition": lambda fields, topic, partition: pa.repeat(pa.scalar(partition, pa.int32()), len(fields)),
    "offset": lambda fields, topic, partition: pa.array(fields.offsets),
    "timestamp": _timestamp,
    "timestampType": lambda fields, topic, partition: pa.array(fields.timestamp_types),
    DELETES: lambda fields, topic, partition: pulsar_columns.deletes(fields),
}


def to_arrow(
    fields: Fields,
    topic: str,
    partition: int,
    schema: pa.Schema,
    typed: "Typed | None" = None,
    *,
    is_lone: bool = False,
) -> pa.RecordBatch:
    """The records of `fields`, which lie in one partition, as rows with the columns of `schema`.

    `is_lone`: the topic has no other partition, which Pulsar's clients tell apart.
    """
    made: dict[str, pa.Array] = {}
    pulsars = [name for name in schema.names if name in PULSARS]
    if pulsars or "headers" in schema.names:
        headers = headers_column(fields)
        made["headers"] = pulsar_columns.without_description(headers) if pulsars else headers
        for name in pulsars:
            made[name] = pulsar_columns.make(name, fields, headers, -1 if is_lone else partition)
    if typed is not None:
        made |= _typed_columns(fields, topic, partition, schema, typed)
    arrays = [made[name] if name in made else _MAKE[name](fields, topic, partition) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed_columns(
    fields: Fields, topic: str, partition: int, schema: pa.Schema, typed: "Typed"
) -> dict[str, pa.Array]:
    from anabranch.spark.values.typed import Records, typed_columns  # most queries have no use for it

    keys, values = (_MAKE[name](fields, topic, partition) for name in ("key", "value"))
    has_headers = bool((fields.data[fields.headers] > 0).any())
    headers = headers_column(fields) if has_headers else None
    records = Records(topic, partition, fields.offsets, keys, values, headers)
    return typed_columns(typed, records, schema.names)


def of_table(rows: pa.RecordBatch, schema: pa.Schema, typed: "Typed") -> pa.RecordBatch:
    """Rows of one partition that a table has, read by their schemas; they have the columns of `in_table`."""
    from anabranch.spark.values.typed import Records, typed_columns

    told = {name: rows.column(number) for number, name in enumerate(rows.schema.names)}
    records = Records(
        told["topic"][0].as_py(),
        told["partition"][0].as_py(),
        np.asarray(told["offset"]),
        told["key"],
        told["value"],
        told["headers"],
    )
    made = told | typed_columns(typed, records, schema.names)
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
