"""The columns that a topic has as a table: those of Spark's Kafka source, in its order and types.

    key, value        binary, null as the record says
    topic             string
    partition         int
    offset            long
    timestamp         timestamp, to the millisecond; timestampType: 0 is the producer's, 1 the broker's
    timestampType     int
    headers           array of (key, value), null if there are none; on demand (`includeHeaders`)

A column that is not asked for is not made, so a reader with a schema of fewer columns is quicker.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from anabranch.spark.decode import HEADER_FIELDS, Fields, cut, headers_column

TIMESTAMP = pa.timestamp("us", tz="UTC")
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

DDL: dict[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""What each column is to Spark."""

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
    "headers": lambda fields, topic, partition: headers_column(fields),
}


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in names])


def to_arrow(fields: Fields, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """The records of `fields`, which lie in one partition, as rows with the columns of `schema`."""
    arrays = [_MAKE[name](fields, topic, partition) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
