"""Protobuf into columns, as Spark's own from_protobuf has them.

    int32, sint32, sfixed32 · uint32, fixed32      int · bigint
    int64, sint64, sfixed64 · uint64, fixed64      bigint · decimal(20, 0)
    float, double, bool, string, bytes             themselves
    enum                                           string, its name; of an unknown number, the number
    message                                        struct
    repeated, map                                  array, map
    Timestamp                                      timestamp
    Wrappers such as StringValue                   structs, as any message

A field that knows whether it is set (a message, an `optional`, one of a `oneof`) is null if it is not;
another has its default.  Values are read by the reader's own descriptor, whoever wrote them: fields go by
number, and what it does not know is left out.  A message that contains itself cannot be a column.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from anabranch.base.errors import Invalid
from anabranch.schemas.protobuf import parse, well_known
from anabranch.spark.values.avro_types import TIMESTAMP, Room, list_of, map_of
from anabranch.spark.values.to_column import read_each

_F = FieldDescriptor
_UNSIGNED_LONG = pa.decimal128(20, 0)
_PLAIN = {
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT64: _UNSIGNED_LONG,
    _F.TYPE_FIXED64: _UNSIGNED_LONG,
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
_TIME = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Get = Callable[[Any], Any]


def descriptor_of(text: str) -> FileDescriptor:
    """The file that a registry gives, as text or packed, ready to find messages in."""
    parsed = parse(text, {})
    pool = descriptor_pool.DescriptorPool()
    _add(pool, parsed.file, set())
    return pool.FindFileByName(parsed.file.name)


def _add(
    pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto, done: set[str]
) -> None:
    for name in file.dependency:
        known = None if name in done else well_known(name)
        if known is not None:
            done.add(name)
            _add(pool, known, done)
    pool.Add(file)


def message_at(file: FileDescriptor, indexes: Iterable[int]) -> Descriptor:
    """The message that a path of numbers leads to: the second inside the first is 0, 1.  Invalid if none."""
    messages, found = list(file.message_types_by_name.values()), None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise Invalid("the schema has no such message")
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise Invalid("the schema has no message")
    return found


def arrow_type(message: Descriptor, inside: tuple[str, ...] = (), room: Room | None = None) -> pa.DataType:
    room = room or Room()
    room.take()
    if message.full_name == _TIME:
        return TIMESTAMP
    if message.full_name in inside:
        raise Invalid(f"the schema's {message.full_name} contains itself, which no column can")
    within = (*inside, message.full_name)
    return pa.struct([(field.name, _field_type(field, within, room)) for field in message.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...], room: Room) -> pa.DataType:
    room.take()
    if _is_map(field):
        return map_of(_single_type(_inner(field).fields_by_name["value"], inside, room))
    single = _single_type(field, inside, room)
    return list_of(single) if field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...], room: Room) -> pa.DataType:
    if field.type in (_F.TYPE_MESSAGE, _F.TYPE_GROUP):
        return arrow_type(_inner(field), inside, room)
    return _PLAIN[field.type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.type == _F.TYPE_MESSAGE and _inner(field).GetOptions().map_entry


def _inner(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def reader_of(message: Descriptor) -> Callable[[pa.BinaryArray], tuple[pa.Array, dict[int, str]]]:
    """What reads values of that message: their column, and by row what is wrong with those that are none."""
    kind = message_factory.GetMessageClass(message)
    type = arrow_type(message)
    get = _getter(message)
    refusals = (DecodeError, OverflowError)
    return lambda values: read_each(values, lambda value: get(kind.FromString(value)), refusals, type)


def _getter(message: Descriptor) -> _Get:
    """A message as Arrow takes it."""
    if message.full_name == _TIME:
        return lambda one: _EPOCH + timedelta(seconds=one.seconds, microseconds=one.nanos // 1000)
    parts: list[tuple[str, bool, _Get | None]] = [
        (field.name, field.has_presence, _field_getter(field)) for field in message.fields
    ]

    def get(one: Message) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, optional, change in parts:
            if optional and not one.HasField(name):
                found[name] = None
            else:
                value = getattr(one, name)
                found[name] = value if change is None else change(value)
        return found

    return get


def _field_getter(field: FieldDescriptor) -> _Get | None:
    if _is_map(field):
        entry = _inner(field).fields_by_name
        key, value = _key_text(entry["key"]), _single_getter(entry["value"])
        return lambda items: [
            (key(name), items[name] if value is None else value(items[name])) for name in items
        ]
    single = _single_getter(field)
    if not field.is_repeated:
        return single
    return list if single is None else lambda items: [single(one) for one in items]


def _key_text(field: FieldDescriptor) -> _Get:
    if field.type == _F.TYPE_BOOL:
        return lambda name: "true" if name else "false"
    return str


def _single_getter(field: FieldDescriptor) -> _Get | None:
    if field.type in (_F.TYPE_MESSAGE, _F.TYPE_GROUP):
        return _getter(_inner(field))
    if field.type == _F.TYPE_ENUM:
        assert field.enum_type is not None
        names: Mapping[int, str] = {
            number: one.name for number, one in field.enum_type.values_by_number.items()
        }
        return lambda number: names.get(number, str(number))
    return None
