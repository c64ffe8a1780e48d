"""Avro types as columns: the same that Spark's own from_avro gives.

    int, long, float, double, boolean, string, bytes      themselves
    enum                         string
    fixed                        binary
    array, map, record           array, map with string keys, struct
    null and another             the other, nullable
    several others               a struct of member0, member1 …, one of which is not null;
                                 int and long together are long, float and double double
    date, timestamp-*, decimal   date, timestamp, decimal; local-timestamp-* are timestamps without a zone
    uuid, time-*, unknown        what they are written as

A type that contains itself cannot be a column: Spark has no such type.  A small schema can also stand for
very many columns, by names that are used again and again, so columns are counted.
"""

from typing import Any

import pyarrow as pa

from anabranch.base.errors import Invalid
from anabranch.schemas.avro import RECORDS, Parsed

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
TIMES = {
    "timestamp-millis": (TIMESTAMP, 1000),
    "timestamp-micros": (TIMESTAMP, 1),
    "local-timestamp-millis": (LOCAL_TIMESTAMP, 1000),
    "local-timestamp-micros": (LOCAL_TIMESTAMP, 1),
}
"""Of a long: what it is, and how many microseconds its unit has."""

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_MOST_DIGITS = 38
_MOST_PARTS = 10_000
_TOGETHER = ({"int", "long"}, "long"), ({"float", "double"}, "double")


def kind_of(schema: Any) -> str:
    """The type's name; of a union "union"."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def logical_of(schema: Any) -> str:
    return str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""


def decimal_of(schema: Any) -> pa.DataType | None:
    """The decimal that bytes or a fixed stand for, if they do and Spark has it."""
    if logical_of(schema) != "decimal" or kind_of(schema) not in ("bytes", "fixed"):
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
        return None
    return pa.decimal128(precision, scale) if 0 < precision <= _MOST_DIGITS else None


def members(parsed: Parsed, union: list[Any]) -> list[Any]:
    """The types of a union that are not null, as one where they go together."""
    found = [parsed.resolve(one) for one in union]
    found = [one for one in found if kind_of(one) != "null"]
    for together, wider in _TOGETHER:
        if len(found) > 1 and all(isinstance(one, str) and one in together for one in found):
            return [wider]
    return found


class Room:
    """How many parts a column may still have."""

    def __init__(self) -> None:
        self._left = _MOST_PARTS

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Invalid(f"the schema stands for more than {_MOST_PARTS} columns and parts of them")


def arrow_type(
    parsed: Parsed, schema: Any, inside: tuple[str, ...] = (), room: Room | None = None
) -> pa.DataType:
    """The column that `schema` is.  Invalid if it contains itself."""
    room = room or Room()
    room.take()
    schema = parsed.resolve(schema)
    kind = kind_of(schema)
    if kind == "union":
        return union_type([arrow_type(parsed, one, inside, room) for one in members(parsed, schema)])
    if kind in RECORDS:
        name = schema["name"]
        if name in inside:
            raise Invalid(f"the schema's {name} contains itself, which no column can")
        within = (*inside, name)
        types = [arrow_type(parsed, one["type"], within, room) for one in schema["fields"]]
        return pa.struct([(one["name"], type) for one, type in zip(schema["fields"], types, strict=True)])
    if kind == "array":
        return list_of(arrow_type(parsed, schema["items"], inside, room))
    if kind == "map":
        return map_of(arrow_type(parsed, schema["values"], inside, room))
    logical = logical_of(schema)
    if kind == "int" and logical == "date":
        return pa.date32()
    if kind == "long" and logical in TIMES:
        return TIMES[logical][0]
    return decimal_of(schema) or _PLAIN[kind]


def union_type(types: list[pa.DataType]) -> pa.DataType:
    if not types:
        return pa.null()
    if len(types) == 1:
        return types[0]
    return pa.struct([(f"member{number}", one) for number, one in enumerate(types)])


def list_of(item: pa.DataType) -> pa.DataType:
    """An array, as Spark names its parts."""
    return pa.list_(pa.field("element", item))


def map_of(value: pa.DataType) -> pa.DataType:
    """A map with string keys, as Spark names its parts."""
    return pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", value))
