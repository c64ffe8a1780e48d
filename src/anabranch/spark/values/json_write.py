"""Rows into JSON, and the JSON Schema of their columns.

Times are ISO 8601, bytes base 64, decimals text.  Objects are closed (`additionalProperties` is false): a
registry then takes a further column as compatible.
"""

from typing import Any

import msgspec
import pyarrow as pa

from anabranch.base.errors import Invalid


def schema_of(fields: list[pa.Field], name: str) -> dict[str, Any]:
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_object(fields)}


def _object(fields: list[pa.Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {one.name: _maybe(one) for one in fields},
        "required": [one.name for one in fields if not one.nullable],
        "additionalProperties": False,
    }


def _maybe(field: pa.Field) -> Any:
    inner = _type(field.type)
    return {"oneOf": [{"type": "null"}, inner]} if field.nullable else inner


def _type(type: pa.DataType) -> Any:
    if pa.types.is_boolean(type):
        return {"type": "boolean"}
    if pa.types.is_integer(type):
        return {"type": "integer"}
    if pa.types.is_floating(type):
        return {"type": "number"}
    if pa.types.is_timestamp(type):
        return {"type": "string", "format": "date-time"}
    if pa.types.is_date32(type):
        return {"type": "string", "format": "date"}
    if pa.types.is_string(type) or pa.types.is_binary(type) or pa.types.is_decimal(type):
        return {"type": "string"}
    if pa.types.is_struct(type):
        return _object(list(type))
    if pa.types.is_list(type):
        return {"type": "array", "items": _maybe(type.value_field)}
    if pa.types.is_map(type) and type.key_type == pa.string():
        return {"type": "object", "additionalProperties": _maybe(type.item_field)}
    raise Invalid(f"a column of type {type} cannot be written as JSON")


def encode_rows(columns: list[pa.Array], fields: list[pa.Field]) -> pa.BinaryArray:
    """Each row as an object of `schema_of(fields, …)`."""
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)).to_pylist(maps_as_pydicts="strict")
    encode = msgspec.json.Encoder().encode
    return pa.array([encode(row) for row in rows], pa.binary())
