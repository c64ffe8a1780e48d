"""The columns that a topic has as a table: those of Spark's Kafka source, in its order and types.

    key, value        binary, null as the record says
    topic             string
    partition         int
    offset            long
    timestamp         timestamp, to the millisecond; timestampType: 0 is the producer's, 1 the broker's
    timestampType     int
    headers           array of (key, value), null if there are none; on demand (`includeHeaders`)

And what Pulsar's clients see of a message, on demand (`includePulsar`), which `pulsar_columns` says more of.
"""

from collections.abc import Container, Iterable

import pyarrow as pa

HEADER_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))
TIMESTAMP = pa.timestamp("us", tz="UTC")

TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct(list(HEADER_FIELDS)))),
}
"""What each column is to Arrow."""

PULSARS: dict[str, pa.DataType] = {
    "messageId": pa.binary(),
    "publishTime": TIMESTAMP,
    "eventTime": TIMESTAMP,
    "properties": pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())),
    "producerName": pa.string(),
}
"""Those of Pulsar's."""

PLAIN = tuple(name for name in TYPES if name != "headers")


def arrow_schema(names: Iterable[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in names])


def in_table(names: Container[str]) -> pa.Schema:
    """The columns of a table of which the columns `names` are made."""
    described = [(name, type) for name, type in PULSARS.items() if name in names]
    return pa.schema([*TYPES.items(), *described])
