"""Avro encoding: columns into Avro's binary form, with no object per row, the reverse of `avro_nodes`.

A part of every row is a column of bytes; a record is these joined, row by row, by Arrow.  The schema is made
of the columns' own types:

    byte, short, int · bigint · float · double · boolean · string · binary      themselves
    date · timestamp · timestamp_ntz     int, date · long, timestamp-micros · long, local-timestamp-micros
    decimal                              bytes, decimal
    array · map · struct                 array · map · record, named by where it stands
    nullable                             a union of null and that, null if it is missing
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.base.errors import Invalid
from anabranch.spark.encode import as_binary, joined, numbers, sizes_of
from anabranch.spark.varints import Ints

_PLAIN: list[tuple[Callable[[pa.DataType], bool], Any]] = [
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "int"),
    (pa.types.is_int16, "int"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
]


def schema_of(fields: list[pa.Field], name: str) -> dict[str, Any]:
    """The record that has these fields, called `name` (in full)."""
    return {"type": "record", "name": name, "fields": [_field(one, name) for one in fields]}


def _field(field: pa.Field, inside: str) -> dict[str, Any]:
    inner = _type(field.type, f"{inside}_{field.name}")
    if not field.nullable:
        return {"name": field.name, "type": inner}
    return {"name": field.name, "type": ["null", inner], "default": None}


def _type(type: pa.DataType, name: str) -> Any:
    if pa.types.is_timestamp(type):
        return {"type": "long", "logicalType": f"{'' if type.tz else 'local-'}timestamp-micros"}
    if pa.types.is_decimal(type):
        return {"type": "bytes", "logicalType": "decimal", "precision": type.precision, "scale": type.scale}
    if pa.types.is_struct(type):
        return schema_of(list(type), name)
    if pa.types.is_map(type):
        if type.key_type != pa.string():
            raise Invalid(
                f"a map with keys of {type.key_type} cannot be written as Avro: they must be strings"
            )
        return {"type": "map", "values": _maybe(type.item_field, name)}
    if pa.types.is_list(type):
        return {"type": "array", "items": _maybe(type.value_field, name)}
    for fits, avro in _PLAIN:
        if fits(type):
            return avro
    raise Invalid(f"a column of type {type} cannot be written as Avro")


def _maybe(field: pa.Field, name: str) -> Any:
    inner = _type(field.type, name)
    return ["null", inner] if field.nullable else inner


def encode_rows(columns: list[pa.Array], fields: list[pa.Field]) -> pa.BinaryArray:
    """Each row as a record of `schema_of(fields, …)`."""
    return joined(*(_encoded(column, field) for column, field in zip(columns, fields, strict=True)))


def _encoded(column: pa.Array, field: pa.Field) -> pa.BinaryArray:
    """Each element in full, with its branch of the union if it may be null."""
    if not field.nullable:
        if column.null_count:
            raise Invalid(f"the column {field.name} has a null, which its schema does not allow")
        return _content(column)
    there = np.asarray(column.is_valid())
    if there.all():
        return joined(pa.repeat(pa.scalar(b"\x02"), len(column)), _content(column))
    places = pa.array(np.cumsum(there) - 1, mask=~there)
    branch = pc.if_else(pa.array(there), pa.scalar(b"\x02"), pa.scalar(b"\x00"))
    return joined(branch, _content(column.drop_null()).take(places))


def _content(column: pa.Array) -> pa.BinaryArray:
    """Each element, of which none is null, without its branch."""
    type = column.type
    if pa.types.is_boolean(type):
        return pc.if_else(column, pa.scalar(b"\x01"), pa.scalar(b"\x00"))
    if pa.types.is_temporal(type):
        column = column.view(pa.int32() if pa.types.is_date32(type) else pa.int64())
        return numbers(np.asarray(column).astype(np.int64))
    if pa.types.is_integer(type):
        return numbers(np.asarray(column).astype(np.int64))
    if pa.types.is_floating(type):
        return _fixed(np.ascontiguousarray(column).view(np.uint8), type.bit_width // 8)
    if pa.types.is_decimal(type):
        return _decimals(column)
    if pa.types.is_struct(type):
        return encode_rows(column.flatten(), list(type))
    if pa.types.is_map(type):
        pairs = column.cast(pa.list_(pa.struct([type.key_field, type.item_field])))
        return _blocks(pairs, lambda items: encode_rows(items.flatten(), [type.key_field, type.item_field]))
    if pa.types.is_list(type):
        return _blocks(column, lambda items: _encoded(items, type.value_field))
    text = as_binary(column)
    return joined(numbers(sizes_of(text)), text)


def _blocks(column: pa.ListArray, encode: Callable[[pa.Array], pa.BinaryArray]) -> pa.BinaryArray:
    """All items of each element as one block, and the end; only the end if there are none."""
    counts: Ints = np.asarray(pc.list_value_length(column)).astype(np.int64)
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    together = pc.binary_join(pa.ListArray.from_arrays(pa.array(edges), encode(column.flatten())), b"")
    begun = pc.if_else(pa.array(counts > 0), numbers(counts), pa.scalar(b""))
    return joined(begun, together, pa.repeat(pa.scalar(b"\x00"), len(counts)))


def _fixed(data: "np.typing.NDArray[np.uint8]", size: int) -> pa.BinaryArray:
    edges = np.arange(0, len(data) + size, size, dtype=np.int32)[: len(data) // size + 1]
    return pa.Array.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(data))]
    )


def _decimals(column: pa.Array) -> pa.BinaryArray:
    """Sixteen bytes, the highest first, and their number before them."""
    wide = column.cast(pa.decimal128(38, column.type.scale)) if column.type.bit_width != 128 else column
    raw = np.frombuffer(wide.buffers()[1], np.uint8)[16 * wide.offset : 16 * (wide.offset + len(wide))]
    table = np.full((len(wide), 17), 32, np.uint8)  # 16, zigzag
    table[:, 1:] = raw.reshape(-1, 16)[:, ::-1]
    return _fixed(table.reshape(-1), 17)
