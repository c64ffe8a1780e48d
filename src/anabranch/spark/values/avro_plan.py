"""Avro schema resolution into columns: the writer's nodes, giving the reader's types.

As Avro's specification resolves schemas: fields go by name or alias, in whatever order; what the reader lacks
is passed over; what the writer lacks takes the reader's default, or is null; an int may be read as a long, a
float as a double, text as bytes.  Names of records do not count, as they do not for Pulsar's clients.

What cannot be resolved is no error as long as no value has it, such as a branch of a union that the reader
has no place for.  The values that do have it are bad ones, with the reason.
"""

from collections.abc import Container
from typing import Any

import pyarrow as pa

from anabranch.base.errors import Invalid
from anabranch.schemas.avro import RECORDS, Parsed
from anabranch.schemas.avro_resolution import PROMOTED
from anabranch.spark.values.avro_items import Entries, Items
from anabranch.spark.values.avro_nodes import (
    Again,
    Bool,
    Decimal,
    Enum,
    Fixed,
    Member,
    Node,
    Null,
    Number,
    Part,
    Real,
    Record,
    Refused,
    Text,
    Union,
)
from anabranch.spark.values.avro_types import TIMES, arrow_type, decimal_of, kind_of, logical_of, members

_BITS = {"int": 32, "long": 64}
_REAL_BYTES = {"float": 4, "double": 8}
_MOST_NODES = 50_000
_LARGEST_FIXED_BYTES = (1 << 31) - 1


def plan(writer: Parsed, reader: Parsed, wanted: Container[str] | None = None) -> Node:
    """Reads what `writer` wrote; of a record, the reader's fields that are `wanted`, in its order."""
    return _Plan(writer, reader, wanted).root()


class _Plan:
    def __init__(self, writer: Parsed, reader: Parsed, wanted: Container[str] | None) -> None:
        self._writer = writer
        self._reader = reader
        self._wanted = wanted
        self._skipped: dict[str, Again] = {}
        self._nodes = 0

    def root(self) -> Node:
        return self._node(self._writer.root, self._reader.root, wanted=self._wanted)

    def _node(self, written: Any, read: Any, wanted: Container[str] | None = None) -> Node:
        self._nodes += 1
        if self._nodes > _MOST_NODES:  # records of unions of records double with every level
            raise Invalid(f"the writer's schema has more than {_MOST_NODES} parts")
        written, read = self._writer.resolve(written), self._reader.resolve(read)
        if kind_of(written) == "union":
            branches = [self._node(branch, read, wanted) for branch in written]
            return Union(self._type(read, wanted), branches)
        if kind_of(read) == "union":
            return self._member(written, read, wanted)
        return self._one(written, read, wanted)

    def _type(self, read: Any, wanted: Container[str] | None) -> pa.DataType:
        read = self._reader.resolve(read)
        if kind_of(read) == "union" and len(choices := members(self._reader, read)) == 1:
            return self._type(choices[0], wanted)
        if kind_of(read) not in RECORDS:
            return arrow_type(self._reader, read)
        fields = [one for one in read["fields"] if wanted is None or one["name"] in wanted]
        return pa.struct([(one["name"], arrow_type(self._reader, one["type"])) for one in fields])

    def _member(self, written: Any, read: list[Any], wanted: Container[str] | None) -> Node:
        """What one type is in the reader's union."""
        type = self._type(read, wanted)
        choices = members(self._reader, read)
        if kind_of(written) == "null":
            if len(choices) == len(read):
                return Refused(type, "null, for which the reader's schema has no place")
            return Null(type)
        if len(choices) == 1:
            return self._node(written, choices[0], wanted)
        fits = [number for number, one in enumerate(choices) if _same(written, one)]
        fits += [number for number, one in enumerate(choices) if _goes(written, one)]
        if not fits:
            return Refused(type, f"{kind_of(written)}, for which the reader's union has no branch")
        return Member(type, fits[0], self._node(written, choices[fits[0]]))

    def _one(self, written: Any, read: Any, wanted: Container[str] | None) -> Node:
        kind, other = kind_of(read), kind_of(written)
        if kind in RECORDS and other in RECORDS:
            return self._record(written, read, wanted)
        type = self._type(read, wanted)
        if kind != other and other not in PROMOTED.get(kind, ()):
            return Refused(type, f"{other} of the writer's schema is {kind} in the reader's")
        if kind == "array":
            return Items(type, self._node(written["items"], read["items"]))
        if kind == "map":
            return Entries(type, self._node(written["values"], read["values"]))
        if kind == "enum":
            known, default = set(read["symbols"]), read.get("default")
            return Enum([one if one in known else default for one in written["symbols"]])
        if kind == "null":
            return Null(type)
        return _plain(written, read, type)

    def _record(self, written: Any, read: Any, wanted: Container[str] | None) -> Record:
        fields = [one for one in read["fields"] if wanted is None or one["name"] in wanted]
        type = self._type(read, wanted)
        places: dict[str, int] = {}
        for number, one in enumerate(fields):
            for name in (one["name"], *one.get("aliases", ())):
                places.setdefault(name, number)
        parts: list[Part] = []
        found: set[int] = set()
        for one in written["fields"]:
            place = places.get(one["name"])
            if place is None or place in found:
                parts.append(Part(self._skip(one["type"]), None))
            else:
                found.add(place)
                parts.append(Part(self._node(one["type"], fields[place]["type"]), place))
        constants = {
            number: _default(self._reader, one, type.field(number).type)
            for number, one in enumerate(fields)
            if number not in found
        }
        return Record(type, parts, constants)

    def _skip(self, written: Any) -> Node:
        """Passes over what the writer has and the reader has not."""
        written = self._writer.resolve(written)
        kind = kind_of(written)
        nothing = pa.null()
        if kind == "union":
            return Union(nothing, [self._skip(branch) for branch in written])
        if kind == "array":
            return Items(nothing, self._skip(written["items"]))
        if kind == "map":
            return Entries(nothing, self._skip(written["values"]))
        if kind in RECORDS:
            name = written["name"]
            if name not in self._skipped:
                again = self._skipped[name] = Again()
                again.node = Record(
                    pa.struct([]), [Part(self._skip(one["type"]), None) for one in written["fields"]], {}
                )
            return self._skipped[name]
        if kind == "enum":
            return Number(pa.int64(), 64)
        if kind == "null":
            return Null(nothing)
        plain = kind if kind != "fixed" else {"type": "fixed", "size": written["size"]}
        return _plain(plain, plain, pa.binary() if kind == "fixed" else arrow_type(self._writer, kind))


def _plain(written: Any, read: Any, type: pa.DataType) -> Node:
    """A type without parts."""
    kind = kind_of(written)
    if kind == "fixed":
        _check_size(written["size"])
    if kind == "fixed" and written["size"] != read["size"]:
        return Refused(type, f"a fixed of {written['size']} bytes has {read['size']} in the reader's schema")
    if pa.types.is_decimal(type):
        if decimal_of(written) not in (None, type):
            return Refused(type, f"{decimal_of(written)} is {type} in the reader's schema")
        return Decimal(type, written["size"] if kind == "fixed" else None)
    if kind in _BITS:
        unit_us = TIMES.get(logical_of(written), TIMES.get(logical_of(read), (None, 1)))[1]
        return Number(type, _BITS[kind], unit_us if pa.types.is_timestamp(type) else 1)
    if kind in _REAL_BYTES:
        return Real(type, _REAL_BYTES[kind])
    if kind == "boolean":
        return Bool()
    if kind == "fixed":
        return Fixed(written["size"])
    return Text(type)


def _check_size(size: Any) -> None:
    """Avro's parser takes whatever stands there."""
    if type(size) is not int or not 0 <= size <= _LARGEST_FIXED_BYTES:
        raise Invalid(f"a fixed has a size of {size!r}")


def _same(written: Any, read: Any) -> bool:
    if kind_of(written) != kind_of(read):
        return False
    names = [one.get("name") if isinstance(one, dict) else None for one in (written, read)]
    return names[0] == names[1]


def _goes(written: Any, read: Any) -> bool:
    kind, other = kind_of(read), kind_of(written)
    return kind == other or other in PROMOTED.get(kind, ()) or (kind in RECORDS and other in RECORDS)


def _default(parsed: Parsed, field: Any, type: pa.DataType) -> pa.Array:
    if field.get("default") is None:
        return pa.nulls(1, type)
    try:
        return pa.array([_value(parsed, field["type"], field["default"])], type)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
        raise Invalid(f"the default of the field {field['name']} is none of its type: {error}") from error


def _value(parsed: Parsed, schema: Any, told: Any) -> Any:
    """A default as Arrow takes it: JSON, except for bytes, which are written as text."""
    schema = parsed.resolve(schema)
    kind = kind_of(schema)
    if kind == "union":
        return _union_value(parsed, schema, told)
    if kind in RECORDS:
        return {
            one["name"]: _value(parsed, one["type"], told.get(one["name"], one.get("default")))
            for one in schema["fields"]
        }
    if told is None:
        return None
    if kind == "array":
        return [_value(parsed, schema["items"], one) for one in told]
    if kind == "map":
        return [(key, _value(parsed, schema["values"], one)) for key, one in told.items()]
    if kind in ("bytes", "fixed"):
        data = told.encode("latin-1")
        decimal = decimal_of(schema)
        return data if decimal is None else _decimal(data, decimal)
    if kind == "long" and logical_of(schema) in TIMES:
        return told * TIMES[logical_of(schema)][1]
    return told


def _union_value(parsed: Parsed, union: list[Any], told: Any) -> Any:
    """A union's default is of its first branch."""
    if told is None:
        return None
    choices = members(parsed, union)
    if len(choices) == 1:
        return _value(parsed, choices[0], told)
    return {"member0": _value(parsed, choices[0], told)}


def _decimal(data: bytes, type: pa.DataType) -> Any:
    from decimal import Decimal as Exact

    return Exact(int.from_bytes(data, "big", signed=True)).scaleb(-type.scale)
