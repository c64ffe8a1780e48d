"""What batch and streaming reads have in common: how records are fetched, and which columns come out."""

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.base.errors import Invalid
from anabranch.spark.columns import DDL, PLAIN, TYPES, arrow_schema
from anabranch.spark.fetching import Fetching
from anabranch.spark.options import LEAST_FETCH_BYTES, Options, settings

_ISOLATION = {"read_uncommitted": False, "read_committed": True}


def fetching_of(options: Options) -> Fetching:
    isolation = options.choice("kafka.isolation.level", _ISOLATION, "read_uncommitted")
    how = settings(options)
    poll_ms = options.whole("kafkaConsumer.pollTimeoutMs")
    return Fetching(
        how if poll_ms is None else how._replace(timeout_s=poll_ms / 1000),
        _ISOLATION[isolation],
        options.flag("failOnDataLoss", True),
        options.number(
            "kafka.max.partition.fetch.bytes", Fetching._field_defaults["fetch_bytes"], LEAST_FETCH_BYTES
        ),
    )


def spark_schema(options: Options) -> str:
    """The columns of a topic, as Spark writes them."""
    names = (*PLAIN, "headers") if options.flag("includeHeaders", False) else PLAIN
    return ", ".join(f"{name} {DDL[name]}" for name in names)


def chosen_columns(schema: StructType) -> pa.Schema:
    """The columns that a query's `schema` asks for.  Invalid unless they are a topic's."""
    from pyspark.sql.pandas.types import to_arrow_schema

    names = schema.fieldNames()
    if unknown := [name for name in names if name not in TYPES]:
        raise Invalid(f"a topic has no column {unknown[0]}; there are {', '.join(TYPES)}")
    wanted = arrow_schema(names)
    asked = to_arrow_schema(schema, timezone="UTC")
    for ours, theirs in zip(wanted, asked, strict=True):
        if ours.type != theirs.type:
            raise Invalid(f"the column {ours.name} is {DDL[ours.name]}, not {theirs.type}")
    return asked
