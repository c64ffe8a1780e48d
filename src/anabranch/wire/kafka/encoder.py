"""Answers written from plain nested dicts, at any version, by the schema.

    encoder(3, 12)(out, {"brokers": [...], "topics": [...], "cluster_id": "…"})

Keys are the schema's field names.  One that only other versions know is left out, one that is missing
takes the schema's default, and one that is missing without a default is a bug and raises KeyError.
Durations and times are milliseconds, arrays are lists.  An item of an array may be given as the bytes
that `item_encoder` made of it, where those are worth keeping.

A key that no version knows is a bug, too: `{"eror_code": 17}` would be sent as success.  Strict encoders
raise KeyError; they are compiled in tests and debug runs, with ANABRANCH_STRICT=1 or under `python -X dev`.
Others do not look.
"""

import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from anabranch.wire.kafka.known_fields import Known, known_fields, refusing_unknown
from anabranch.wire.kafka.schema import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    is_optional,
    request_schema,
    response_schema,
    versions_of,
)

Encoder = Callable[[bytearray, Mapping[str, Any]], None]
_Write = Callable[[bytearray, Any], None]
_Schema = Callable[[int, int], Any]

STRICT = "ANABRANCH_STRICT"
IS_STRICT = sys.flags.dev_mode or os.environ.get(STRICT) == "1"

_NO_UUID = bytes(16)


def uvarint(value: int) -> bytes:
    """An unsigned varint, as compact lengths and tags are written."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(code: str) -> _Write:
    pack = struct.Struct(">" + code).pack
    return lambda out, value: out.extend(pack(value))


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += _NO_UUID if value is None else value.bytes


def _compact_bytes(out: bytearray, value: bytes | str | None) -> None:
    if value is None:
        out.append(0)
        return
    raw = value.encode() if isinstance(value, str) else value
    out += uvarint(len(raw) + 1)
    out += raw


def _sized(code: str) -> _Write:
    pack = struct.Struct(">" + code).pack
    most = (1 << (8 * struct.calcsize(">" + code) - 1)) - 1

    def write(out: bytearray, value: bytes | str | None) -> None:
        if value is None:
            out.extend(pack(-1))
            return
        raw = value.encode() if isinstance(value, str) else value
        if len(raw) > most:  # a complaint about a name as long as names can be
            raw = raw[:most].decode(errors="ignore").encode()
        out.extend(pack(len(raw)))
        out.extend(raw)

    return write


_FIXED: dict[str, _Write] = {
    "bool": lambda out, value: out.append(1 if value else 0),
    "error_code": _number("h"),
    "float64": _number("d"),
    "int8": _number("b"),
    "int16": _number("h"),
    "int32": _number("i"),
    "int64": _number("q"),
    "uint8": _number("B"),
    "uint16": _number("H"),
    "uint32": _number("I"),
    "uint64": _number("Q"),
    "timedelta_i32": _number("i"),
    "timedelta_i64": _number("q"),
    "datetime_i64": _number("q"),
    "uuid": _write_uuid,
}
_LEGACY: dict[str, _Write] = {"string": _sized("h"), "bytes": _sized("i"), "records": _sized("i")}


def _primitive(kafka_type: str, flexible: bool) -> _Write:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type]
    return _compact_bytes if flexible else _LEGACY[kafka_type]


def _array(write_item: _Write, flexible: bool) -> _Write:
    pack = struct.Struct(">i").pack

    def write(out: bytearray, items: Any) -> None:
        if items is None:
            out.extend(b"\x00" if flexible else b"\xff\xff\xff\xff")
            return
        out.extend(uvarint(len(items) + 1) if flexible else pack(len(items)))
        for item in items:
            write_item(out, item)

    return write


def _maybe_written(write_item: _Write) -> _Write:
    def write(out: bytearray, value: Any) -> None:
        if type(value) is bytes:
            out.extend(value)
        else:
            write_item(out, value)

    return write


def _nullable_struct(write_item: _Write) -> _Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.extend(b"\xff")
        else:
            out.extend(b"\x01")
            write_item(out, value)

    return write


def _field_writer(field: "Field[Any]", flexible: bool) -> _Write:
    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        write = _struct(kind.type_)
        if isinstance(kind, EntityField) and is_optional(field) and get_field_tag(field) is None:
            write = _nullable_struct(write)
        elif kind.is_array:
            write = _maybe_written(write)
    else:
        write = _primitive(field.metadata["kafka_type"], flexible)
    return _array(write, flexible) if kind.is_array else write


def _plain(default: Any) -> Any:
    """A default of kio's as our callers would write it."""
    if isinstance(default, tuple):
        return [_plain(item) for item in default]
    if is_dataclass(default):
        return {field.name: _plain(getattr(default, field.name)) for field in fields(default)}
    return default


def _default(field: "Field[Any]") -> Any:
    """What a missing key stands for, MISSING if nothing does."""
    kafka_type = field.metadata.get("kafka_type", "")
    if field.default is MISSING and kafka_type in ("timedelta_i32", "error_code"):
        return 0  # not throttled; no error
    if isinstance(field.default, timedelta):
        return round(field.default.total_seconds() * 1000)
    if field.default is None and kafka_type == "datetime_i64":
        return -1  # no such time
    if field.default is not MISSING:
        return _plain(field.default)
    return None if is_optional(field) else MISSING


def _struct(entity: Any) -> _Write:
    flexible = bool(entity.__flexible__)
    plain: list[tuple[str, _Write, Any]] = []
    tagged: list[tuple[int, str, _Write, Any]] = []
    for field in fields(entity):
        write = _field_writer(field, flexible)
        tag = get_field_tag(field)
        if tag is None:
            plain.append((field.name, write, _default(field)))
        else:
            tagged.append((int(tag), field.name, write, _default(field)))
    tagged.sort(key=lambda entry: entry[0])

    def write_plain(out: bytearray, value: Mapping[str, Any]) -> None:
        for name, write, default in plain:
            item = value.get(name, default)
            if item is MISSING:
                raise KeyError(f"{entity.__name__} needs {name}")
            write(out, item)

    def write_flexible(out: bytearray, value: Mapping[str, Any]) -> None:
        write_plain(out, value)
        present = [t for t in tagged if t[1] in value and value[t[1]] != t[3]] if tagged else tagged
        out.extend(uvarint(len(present)))
        for tag, name, write, _ in present:
            body = bytearray()
            write(body, value[name])
            out.extend(uvarint(tag) + uvarint(len(body)) + body)

    return write_flexible if flexible else write_plain


def _compiled(schema: _Schema, api_key: int, version: int, array: str | None = None) -> Encoder:
    """Writes the message that `schema` has of `api_key` at `version`, or one item of its `array`."""
    entity = schema(api_key, version)
    if array is not None:
        (field,) = (field for field in fields(entity) if field.name == array)
        entity = classify_field(field).type_
    write = _struct(entity)
    if not IS_STRICT:
        return write

    def known(versions: Iterable[int]) -> Known:
        names = known_fields(schema(api_key, one) for one in versions)
        return names if array is None else names[array]

    return refusing_unknown(
        write, entity.__name__, known([version]), cache(lambda: known(versions_of(api_key)))
    )


@cache
def encoder(api_key: int, version: int) -> Encoder:
    """Writes the answer of `api_key` at `version` from a dict."""
    return _compiled(response_schema, api_key, version)


@cache
def request_encoder(api_key: int, version: int) -> Encoder:
    """Writes the body of a request of `api_key` at `version` from a dict."""
    return _compiled(request_schema, api_key, version)


@cache
def item_encoder(api_key: int, version: int, name: str) -> Encoder:
    """Writes one item of the answer's array `name`."""
    return _compiled(response_schema, api_key, version, name)
