"""Spark reads: what batch and streaming have in common, fetching records and choosing columns."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from anabranch.base.errors import Invalid
from anabranch.client.cluster import Cluster
from anabranch.spark.column_types import PLAIN, PULSARS, TYPES
from anabranch.spark.options import LEAST_FETCH_BYTES, OF_SCHEMAS, Options, settings
from anabranch.spark.ranges import Fetching, Range
from anabranch.spark.selection import selection_of

if TYPE_CHECKING:
    from anabranch.spark.values.typed import Typed

_ISOLATION = {"read_uncommitted": False, "read_committed": True}


class Layout(NamedTuple):
    """The columns of a query, and how they are made."""

    schema: pa.Schema
    typed: "Typed | None" = None

    @property
    def is_described(self) -> bool:
        """Whether what Pulsar's clients see of messages is wanted."""
        return any(name in PULSARS for name in self.schema.names)


class OffsetRanges(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: list[Range]) -> None:
        self.wanted = wanted


def fetching_of(options: Options, layout: Layout) -> Fetching:
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
        layout.typed,
        layout.is_described,
    )


def spark_schema(options: Options) -> StructType:
    """The columns of a topic that a query gets which does not name any."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = list(PLAIN)
    if options.flag("includeHeaders", False):
        names.append("headers")
    if options.flag("includePulsar", False):
        names += PULSARS
    types = _types(_typed(options), names)
    return from_arrow_schema(pa.schema(list(types.items())))


def chosen_columns(schema: StructType, options: Options) -> Layout:
    """The columns that a query's `schema` asks for.  Invalid unless they are a topic's."""
    from pyspark.sql.pandas.types import to_arrow_schema

    typed = _typed(options)
    there = _types(typed, [*TYPES, *PULSARS])
    asked = to_arrow_schema(schema, timezone="UTC")
    if unknown := [name for name in asked.names if name not in there]:
        raise Invalid(f"a topic has no column {unknown[0]}; there are {', '.join(there)}")
    for field in asked:
        if there[field.name] != field.type:
            raise Invalid(f"the column {field.name} is {_ddl(there[field.name])}, not {_ddl(field.type)}")
    return Layout(asked, typed)


def _typed(options: Options) -> "Typed | None":
    if not any(options.text(name) is not None for name in OF_SCHEMAS):
        return None
    from anabranch.spark.values.typed import typed_of  # most queries have no use for it

    return typed_of(options, _topics(options))


def _types(typed: "Typed | None", names: Iterable[str]) -> dict[str, pa.DataType]:
    types = TYPES | PULSARS
    plain = {name: types[name] for name in names}
    return plain if typed is None else typed.columns(plain)


def _topics(options: Options) -> Callable[[], set[str]]:
    """Asks which topics a query reads."""

    def ask() -> set[str]:
        with Cluster(settings(options)) as cluster:
            return {one.topic for one in selection_of(options).partitions(cluster)}

    return ask


def _ddl(type: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(type).simpleString()
