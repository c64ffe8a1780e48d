"""Schema-aware writes: a DataFrame's columns become the value, by a schema that is made of them and
registered.

    valueSchema=avro | json      and schema.registry.url

All columns but key, topic, partition, timestamp and headers are fields of the value; one column `value` that
is a struct stands for its fields.  The schema is registered when the query is planned: what the subject's
rules do not allow is refused before any row is written.  It takes the name of the subject's latest schema, if
there is one, since names count when schemas are compared.  Values are framed as Kafka's serializers do.
"""

import json
import re
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.base.errors import Invalid, NotFound
from anabranch.spark.encode import joined
from anabranch.spark.options import Options, WriteOptions
from anabranch.spark.values import avro_write, json_write
from anabranch.spark.values.registry import AVRO, JSON, Registry, registry_of

_OF_RECORDS = ("key", "topic", "partition", "timestamp", "headers")
_FORMS = {"avro": AVRO, "json": JSON}
_NAME = re.compile(r"[^A-Za-z0-9_]")


class Values(NamedTuple):
    """How values are made.  Travels to executors."""

    type: str
    id: int
    columns: tuple[str, ...]
    fields: tuple[pa.Field, ...]
    """Of the value: the columns', or those of the one struct."""

    def encoded(self, rows: pa.Table) -> pa.Table:
        """`rows` with the column `value` in place of those that it is made of."""
        columns = [_whole(rows[name]) for name in self.columns]
        if _is_spread(columns, self.columns):
            if columns[0].null_count:
                raise Invalid("the column value has a null, which its schema does not allow")
            columns = columns[0].flatten()
        module = avro_write if self.type == AVRO else json_write
        content = module.encode_rows(columns, list(self.fields))
        head = pa.repeat(pa.scalar(b"\0" + self.id.to_bytes(4, "big")), rows.num_rows)
        return rows.drop_columns(list(self.columns)).append_column("value", joined(head, content))


def with_values(how: WriteOptions, options: Options, schema: StructType) -> WriteOptions:
    """`how`, with values by a schema that is registered now.  Invalid or Refused if it cannot be."""
    from pyspark.sql.pandas.types import to_arrow_schema

    form = _FORMS[options.choice("valueSchema", _FORMS, "")]
    registry = registry_of(options)
    subject = options.text("valueSubject") or (f"{how.topic}-value" if how.topic else None)
    if subject is None:
        raise Invalid("valueSchema needs the option topic, or valueSubject: where the schema is registered")
    columns = [field for field in to_arrow_schema(schema, timezone="UTC") if field.name not in _OF_RECORDS]
    if not columns:
        raise Invalid("there is no column that could be a field of the value")
    names = tuple(field.name for field in columns)
    fields = list(columns[0].type) if _is_spread(columns, names) else columns
    name = _name(registry, subject, form)
    document = (avro_write if form == AVRO else json_write).schema_of(fields, name)
    id = registry.register(subject, form, json.dumps(document))
    return how._replace(values=Values(form, id, names, tuple(fields)))


def _is_spread(columns: "list[pa.Field] | list[pa.Array]", names: tuple[str, ...]) -> bool:
    return names == ("value",) and pa.types.is_struct(columns[0].type)


def _name(registry: Registry, subject: str, form: str) -> str:
    """What the record is called: as it is, or after the subject."""
    named = _NAME.sub("_", subject.removesuffix("-value"))
    try:
        latest = registry.version(subject, None)
        told = json.loads(latest.text) if latest.type == form else {}
    except (NotFound, ValueError):
        told = {}
    if not isinstance(told, dict) or form == JSON:
        return str(told.get("title", named)) if isinstance(told, dict) else named
    space = told.get("namespace")
    name = str(told.get("name", named if not named[:1].isdigit() else f"_{named}"))
    return f"{space}.{name}" if space and "." not in name else name


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
