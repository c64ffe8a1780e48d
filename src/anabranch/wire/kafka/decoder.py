"""Requests read by the schema into plain objects, whatever the bytes claim.

    request = decode(32, 4, frame, at)      request.resources[0].resource_name

An object has every field of the newest version; one that the request's version lacks holds the
schema's default, so a handler is written once.  (A field that newer versions dropped is there only in
its own versions: `getattr` with a default.)  Durations are milliseconds, ids are UUIDs (None for
the zero id), byte fields are memoryviews into the frame.

Nothing is believed before it is there: a length is checked against what is left of the frame, and
the items of all arrays together are limited, because an array of empty strings would otherwise turn
one byte on the wire into a hundred in memory.
"""

import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from itertools import groupby
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from anabranch.base.errors import Corrupt
from anabranch.wire.kafka.schema import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    is_optional,
    newest_version,
    request_schema,
    response_schema,
)

MAX_ITEMS = 50_000

_ZEROS = {"bool": False, "float64": 0.0, "string": "", "bytes": b"", "records": None, "uuid": None}


class Cursor:
    """Where in a frame the reader stands."""

    __slots__ = ("at", "frame", "items_left")

    def __init__(self, frame: memoryview, at: int, max_items: int = MAX_ITEMS) -> None:
        self.frame = frame
        self.at = at
        self.items_left = max_items

    def take(self, size: int) -> memoryview:
        at = self.at
        if size < 0 or size > len(self.frame) - at:
            raise Corrupt(f"a field claims {size} bytes, {len(self.frame) - at} are left")
        self.at = at + size
        return self.frame[at : at + size]

    def uvarint(self) -> int:
        if self.at < len(self.frame) and (byte := self.frame[self.at]) < 0x80:  # as good as always
            self.at += 1
            return byte
        value = shift = 0
        while shift < 35:
            if self.at >= len(self.frame):
                raise Corrupt("the frame ends inside a varint")
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Corrupt("a varint is longer than five bytes")

    def spend(self, items: int) -> int:
        """`items` array elements follow.  Corrupt if they cannot."""
        if items > len(self.frame) - self.at or items > self.items_left:
            raise Corrupt(f"an array claims {items} items in {len(self.frame) - self.at} bytes")
        self.items_left -= items
        return items


_Read = Callable[[Cursor], Any]
_Step = tuple[str | tuple[str, ...], _Read]


def decode(api_key: int, version: int, frame: memoryview, at: int) -> Any:
    """The request whose body starts at `at`.  Corrupt if the bytes are not one."""
    return _request(api_key, version)(Cursor(frame, at))


@cache
def _request(api_key: int, version: int) -> _Read:
    return _struct(request_schema(api_key, version), request_schema(api_key, newest_version(api_key)))


def decode_answer(api_key: int, version: int, frame: memoryview, at: int, max_items: int = MAX_ITEMS) -> Any:
    """The answer whose body starts at `at`.  Corrupt if the bytes are not one."""
    return _answer(api_key, version)(Cursor(frame, at, max_items))


@cache
def _answer(api_key: int, version: int) -> _Read:
    return _struct(response_schema(api_key, version), response_schema(api_key, newest_version(api_key)))


def skip_tags(cursor: Cursor) -> None:
    at = cursor.at
    if at < len(cursor.frame) and cursor.frame[at] == 0:  # as good as always
        cursor.at = at + 1
        return
    for _ in range(cursor.spend(cursor.uvarint())):
        cursor.uvarint()
        cursor.take(cursor.uvarint())


def _numbers(codes: str) -> _Read:
    """Reads numbers that follow one another, into a tuple."""
    unpacker = struct.Struct(">" + codes)
    size = unpacker.size

    def read(cursor: Cursor) -> Any:
        at = cursor.at
        if at + size > len(cursor.frame):
            raise Corrupt("the frame ends inside a number")
        cursor.at = at + size
        return unpacker.unpack_from(cursor.frame, at)

    return read


def _number(code: str) -> _Read:
    read = _numbers(code)
    return lambda cursor: read(cursor)[0]


def _read_bool(cursor: Cursor) -> bool:
    return cursor.take(1)[0] != 0


def _read_uuid(cursor: Cursor) -> UUID | None:
    raw = bytes(cursor.take(16))
    return UUID(bytes=raw) if any(raw) else None


def _compact_length(cursor: Cursor) -> int:
    return cursor.uvarint() - 1


_short, _int = _number("h"), _number("i")


def _sized(length: _Read, *, text: bool, nullable: bool) -> _Read:
    def read(cursor: Cursor) -> Any:
        size = length(cursor)
        if size == -1 and nullable:
            return None
        raw = cursor.take(size)
        if not text:
            return raw
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise Corrupt(f"a string is not UTF-8: {error}") from error

    return read


_NUMBERS = {
    "error_code": "h",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_FIXED: dict[str, _Read] = {
    "bool": _read_bool,
    "uuid": _read_uuid,
    **{kafka_type: _number(code) for kafka_type, code in _NUMBERS.items()},
}


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> _Read:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type]
    text = kafka_type == "string"
    length = _compact_length if flexible else _short if text else _int
    return _sized(length, text=text, nullable=nullable or kafka_type == "records")


def _array(read_item: _Read, flexible: bool, nullable: bool) -> _Read:
    length = _compact_length if flexible else _int

    def read(cursor: Cursor) -> Any:
        count = length(cursor)
        if count < 0:
            if count == -1 and nullable:
                return None
            raise Corrupt("an array that may not be null is null")
        return [read_item(cursor) for _ in range(cursor.spend(count))]

    return read


def _nullable_struct(read_item: _Read) -> _Read:
    return lambda cursor: None if cursor.take(1)[0] > 127 else read_item(cursor)


def _field_reader(field: "Field[Any]", newest: "Field[Any] | None", flexible: bool) -> _Read:
    kind = classify_field(field)
    tagged = get_field_tag(field) is not None
    nullable = is_optional(field)
    if isinstance(kind, EntityField | EntityTupleField):
        newest_kind = classify_field(newest) if newest is not None else kind
        read = _struct(kind.type_, newest_kind.type_)
        if isinstance(kind, EntityField) and nullable and not tagged:
            read = _nullable_struct(read)
    else:
        read = _primitive(field.metadata["kafka_type"], flexible, nullable and not kind.is_array)
    return _array(read, flexible, nullable) if kind.is_array else read


def _default(field: "Field[Any]") -> Any:
    kind = classify_field(field)
    if field.metadata.get("kafka_type", "").startswith("timedelta"):
        default = field.default
        return 0 if default is MISSING else round(default.total_seconds() * 1000)
    if field.default is not MISSING and not isinstance(kind, EntityField):
        return list(field.default) if isinstance(field.default, tuple) else field.default
    if kind.is_array:
        return None if is_optional(field) else []
    if isinstance(kind, EntityField):
        return None if is_optional(field) else SimpleNamespace(**_defaults(kind.type_))
    return None if is_optional(field) else _ZEROS.get(field.metadata["kafka_type"], 0)


def _defaults(entity: Any) -> dict[str, Any]:
    return {field.name: _default(field) for field in fields(entity)}


def _number_code(field: "Field[Any]") -> str:
    """How `struct` calls the field's type, if it is one number; or nothing."""
    return "" if classify_field(field).is_array else _NUMBERS.get(field.metadata.get("kafka_type", ""), "")


def _in_steps(plain: "list[Field[Any]]", reader: "Callable[[Field[Any]], _Read]") -> list[_Step]:
    """How the fields are read: numbers that follow one another at once, the others one by one."""
    steps: list[_Step] = []
    for code, run in groupby(plain, lambda field: bool(_number_code(field))):
        each = list(run)
        if code and len(each) > 1:
            codes = "".join(map(_number_code, each))
            steps.append((tuple(field.name for field in each), _numbers(codes)))
        else:
            steps.extend((field.name, reader(field)) for field in each)
    return steps


def _struct(entity: Any, newest: Any) -> _Read:
    flexible = bool(entity.__flexible__)
    by_name = {field.name: field for field in fields(newest)}
    plain = [field for field in fields(entity) if get_field_tag(field) is None]
    tagged = {
        int(tag): (field.name, _field_reader(field, by_name.get(field.name), flexible))
        for field in fields(entity)
        if (tag := get_field_tag(field)) is not None
    }
    steps = _in_steps(plain, lambda field: _field_reader(field, by_name.get(field.name), flexible))
    here = {field.name for field in plain}
    defaults = {name: value for name, value in _defaults(newest).items() if name not in here}
    defaults |= {name: value for name, value in _defaults(entity).items() if name not in here}

    def read_plain(cursor: Cursor) -> SimpleNamespace:
        out = SimpleNamespace(**defaults)
        values = out.__dict__
        for name, read in steps:
            if type(name) is str:
                values[name] = read(cursor)
            else:
                values.update(zip(name, read(cursor), strict=True))
        return out

    def read_flexible(cursor: Cursor) -> SimpleNamespace:
        out = read_plain(cursor)
        if cursor.at < len(cursor.frame) and cursor.frame[cursor.at] == 0:  # as good as always
            cursor.at += 1
            return out
        for _ in range(cursor.spend(cursor.uvarint())):
            known = tagged.get(cursor.uvarint())
            size = cursor.uvarint()
            if known is None:
                cursor.take(size)
                continue
            end = cursor.at + size
            setattr(out, known[0], known[1](cursor))
            if cursor.at != end:
                raise Corrupt(f"tagged field {known[0]} is not {size} bytes long")
        return out

    return read_flexible if flexible else read_plain
