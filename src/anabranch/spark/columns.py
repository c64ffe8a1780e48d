"""The columns that a topic has as a table: those of Spark's Kafka source, in its order and types.

    key, value        binary, null as the record says
    topic             string
    partition         int
    offset            long
    timestamp         timestamp, to the millisecond; timestampType: 0 is the producer's, 1 the broker's
    timestampType     int
    headers           array of (key, value), null if there are none; on demand (`includeHeaders`)

What Pulsar's clients see beside that is in `pulsar_columns`, what schemas make of keys and values in
`values`.  A column that is not asked for is not made, so a reader with a schema of fewer columns is quicker.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anabranch.spark import pulsar_columns
from anabranch.spark.decode import HEADER_FIELDS, Fields, cut, headers_column
from anabranch.spark.pulsar_columns import TIMESTAMP

if TYPE_CHECKING:
    from anabranch.spark.values.typed import Typed

HEADERS = pa.list_(pa.field("element", pa.struct(list(HEADER_FIELDS))))

TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""What each column is to Arrow."""

DELETES = "_deletes"
"""Whether a record deletes its key: no column of a query, but of what compacted reads look at first."""

PLAIN = tuple(name for name in TYPES if name != "headers")

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


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in names])


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
    pulsars = [name for name in schema.names if name in pulsar_columns.TYPES]
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


def in_table(names: Sequence[str]) -> pa.Schema:
    """The columns of a table of which the columns `names` are made."""
    described = [(name, type) for name, type in pulsar_columns.TYPES.items() if name in names]
    return pa.schema([*TYPES.items(), *described])
