"""Row columns: which columns of a DataFrame become which part of a record, and what they must be.

    value        string or binary, needed
    key          string or binary
    topic        string; needed unless the option `topic` is given, which wins
    partition    int; where it is null or missing, the key decides (see `partitioner`)
    timestamp    timestamp; the time of writing where it is null or missing
    headers      array of (key, value), written if the option includeHeaders is not false

Other columns are an error rather than lost: a sink that drops what it does not know hides mistakes.  With a
schema they are the value's fields (`values/writing`).
"""

from collections.abc import Collection

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.base.errors import Invalid

_TEXT = (StringType, BinaryType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, TimestampNTZType),
    "headers": (ArrayType,),
}


def check_columns(schema: StructType, topic: str | None, of_value: Collection[str] | None = None) -> None:
    """Invalid unless rows of `schema` can be written; a value is `value`, or made of `of_value`."""
    for field in schema:
        if of_value is not None and field.name in of_value:
            continue
        if field.name not in _TYPES:
            raise Invalid(f"a topic has no column {field.name} to write; there are {', '.join(_TYPES)}")
        if not isinstance(field.dataType, _TYPES[field.name]):
            wanted = " or ".join(kind.typeName() for kind in _TYPES[field.name])
            raise Invalid(f"the column {field.name} is {field.dataType.simpleString()}, not {wanted}")
        if isinstance(field.dataType, ArrayType):
            _check_headers(field.dataType)
    names = schema.fieldNames()
    if of_value is None and "value" not in names:
        raise Invalid("the column value is needed")
    if topic is None and "topic" not in names:
        raise Invalid("a topic is needed: the option topic, or a column topic")


def _check_headers(kind: ArrayType) -> None:
    pair = kind.elementType
    fits = isinstance(pair, StructType) and [type(one.dataType) for one in pair] == [StringType, BinaryType]
    if not fits or pair.fieldNames() != ["key", "value"]:  # type: ignore[attr-defined]
        raise Invalid(
            f"the column headers is {kind.simpleString()}, not array<struct<key:string,value:binary>>"
        )
