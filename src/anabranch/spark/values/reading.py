"""Values, or keys, into columns by the schemas that they were written with.

    00 00 00 00 07 …       Kafka's serializers: a zero, the schema's id, the value
    …                      Pulsar's clients: the value alone; the version is in a header

    rows -> by schema -> each group read at once, as the reader's schema has it -> put back in order

The reader's schema is chosen when the query is planned (`target_of`) and does not change while it runs; a
schema that turns up later is looked up and resolved to it.  Values that are none, or of a schema that cannot
be resolved, are told with the reason; whether that ends the query is not decided here.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FileDescriptor

from anabranch.base.errors import Invalid, NotFound
from anabranch.schemas.avro import parse as parse_avro
from anabranch.spark.partitioner import pieces as pieces_of
from anabranch.spark.values import avro_types, json_read, json_types, protobuf_read, pulsar_types
from anabranch.spark.values.avro_plan import plan
from anabranch.spark.values.cursor import Pieces, check_ends, cursor_of, padded
from anabranch.spark.values.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    PULSAR_JSON,
    Lookup,
    Registry,
    Schema,
)
from anabranch.spark.varints import Bytes, Ints

_FRAME_BYTES = 5
_LONGEST_PATH = 32
_MOST_UNKNOWN = 1000
Reasons = dict[int, str]
"""By row, why it is no value."""

Read = Callable[[Pieces], pa.Array]


class Target(NamedTuple):
    """The schema that a topic's values, or keys, are read as.  Travels to executors."""

    subject: str
    topic: str
    schema: Schema
    is_pulsars: bool = False
    """Only Pulsar's clients see it."""


def target_of(registry: Registry, topic: str, subject: str, version: int | None) -> Target:
    """The subject's schema of that version, or its latest.  NotFound if there is none."""
    try:
        return Target(subject, topic, registry.version(subject, version))
    except NotFound as error:
        if subject != f"{topic}-value":
            raise
        try:
            found = registry.of_pulsar(topic, None if version is None else version - 1)
            return Target(subject, topic, found, is_pulsars=True)
        except (NotFound, Invalid):  # another registry has no such face
            raise NotFound(f"topic {topic!r} has no schema: {error}") from None


@lru_cache(maxsize=100)
def type_of(schema: Schema) -> pa.DataType:
    """What a schema is as a column.  Invalid if it cannot be one."""
    if schema.type == AVRO:
        parsed = parse_avro(schema.text.encode())
        return avro_types.arrow_type(parsed, parsed.root)
    if schema.type in (JSON, PULSAR_JSON):
        return _shape(schema).type
    if schema.type == PROTOBUF:
        return protobuf_read.arrow_type(_first_message(schema))
    if schema.type in pulsar_types.TYPES:
        return pulsar_types.TYPES[schema.type]
    raise Invalid(f"values of the schema type {schema.type} cannot be read as columns")


def read_column(
    registry: Registry, target: Target, column: pa.BinaryArray, versions: Ints, wanted: frozenset[str] | None
) -> tuple[pa.Array, Reasons]:
    """What `column` holds, null where it does or where it is no value, and why it is none.

    `versions` are those that Pulsar's messages name, -1 for others.  Of records, only `wanted` fields.
    """
    starts, sizes, content = pieces_of(column)
    data = padded(content)
    present = ~np.asarray(column.is_null())
    reasons: Reasons = {}
    found: list[pa.Array] = []
    order: Ints = np.full(len(column), -1, np.int64)
    count = 0
    for writer, rows, begins in _groups(registry, target, data, (starts, sizes, versions, present), reasons):
        pieces = Pieces(data, begins, starts[rows] + sizes[rows])
        read = _reader(target.schema, writer, wanted)
        found.append(read(pieces))
        reasons |= {int(rows[place]): reason for place, reason in pieces.reasons.items()}
        order[rows] = np.arange(count, count + len(rows))
        count += len(rows)
    for row in reasons:
        order[row] = -1
    if not found:
        return pa.nulls(len(column), narrowed(type_of(target.schema), wanted)), reasons
    together = pa.concat_arrays(found)
    if count == len(column) and not reasons and len(found) == 1:
        return together, reasons
    return together.take(pa.array(order, mask=order < 0)), reasons


def narrowed(type: pa.DataType, wanted: frozenset[str] | None) -> pa.DataType:
    """A struct with those of its fields that are `wanted`."""
    if wanted is None or not pa.types.is_struct(type):
        return type
    return pa.struct([field for field in type if field.name in wanted])


_Places = tuple[Ints, Ints, Ints, "np.typing.NDArray[np.bool_]"]


def _groups(
    registry: Registry, target: Target, data: Bytes, places: _Places, reasons: Reasons
) -> Iterator[tuple[Schema, Ints, Ints]]:
    """Rows of one writer's schema each, and where in them the values begin."""
    starts, sizes, versions, present = places
    theirs = np.flatnonzero(present & (versions >= 0))
    by_version = partial(_of_version, registry, target)
    for found, rows in _looked_up(by_version, theirs, versions[theirs], reasons):
        yield found, rows, starts[rows]
    others = np.flatnonzero(present & (versions < 0))
    framed = (sizes[others] >= _FRAME_BYTES) & (data[starts[others]] == 0)
    for row in others[~framed].tolist():
        reasons[row] = "it does not begin with the id of a schema"
    others = others[framed]
    ids = data[starts[others][:, None] + np.arange(1, _FRAME_BYTES)].view(">i4").reshape(-1)
    for found, rows in _looked_up(partial(Lookup, registry), others, ids, reasons):
        begins = starts[rows] + _FRAME_BYTES
        if found.type == PROTOBUF:
            rows, begins = _after_paths(found, target.schema, data, (rows, begins, starts + sizes), reasons)
        yield found, rows, begins


def _looked_up(
    lookup: Callable[[int], Lookup], rows: Ints, numbers: Ints, reasons: Reasons
) -> Iterator[tuple[Schema, Ints]]:
    """The schemas that `numbers` stand for, each with those of `rows` that have its number.

    What is known comes first, then what is frequent: if values have numbers that stand for nothing, however
    many, a few questions are asked and no more.
    """
    order = np.argsort(numbers, kind="stable")
    named, begins, counts = np.unique(numbers[order], return_index=True, return_counts=True)
    wanted = [
        (lookup(number), rows[order[begin : begin + count]])
        for number, begin, count in zip(named.tolist(), begins, counts, strict=True)
    ]
    unknown = 0
    for one, mine in sorted(wanted, key=lambda each: (not each[0].is_known, -len(each[1]))):
        try:
            if unknown >= _MOST_UNKNOWN and not one.is_known:
                raise NotFound("too many others near it do not exist, so nobody was asked")
            found = one.schema()
        except (NotFound, Invalid) as error:
            unknown += 1
            reasons.update(dict.fromkeys(mine.tolist(), f"its schema is not to be had: {error}"))
        else:
            yield found, mine


def _of_version(registry: Registry, target: Target, version: int) -> Lookup:
    """A version as Pulsar counts, from 0; Kafka's users count the same ones from 1."""
    if target.is_pulsars:
        return Lookup(registry, topic=target.topic, version=version)
    return Lookup(registry, subject=target.subject, version=version + 1)


@lru_cache(maxsize=200)
def _reader(reader: Schema, writer: Schema, wanted: frozenset[str] | None) -> Read:
    """What reads values of `writer` as `reader` has them."""
    if reader.type != writer.type:
        type = narrowed(type_of(reader), wanted)
        return _refusal(type, f"it is written as {writer.type}, not as {reader.type}")
    if reader.type == AVRO:
        try:
            return _avro_reader(reader, writer, wanted)
        except Invalid as error:
            return _refusal(narrowed(type_of(reader), wanted), f"its schema cannot be resolved: {error}")
    if reader.type in pulsar_types.TYPES:
        return pulsar_types.reader_of(reader.type)
    if reader.type == PROTOBUF:
        read, type = protobuf_read.reader_of(_first_message(reader)), type_of(reader)
    else:
        shape = _shape(reader)
        read, type = json_read.reader_of(shape), shape.type
    names = [field.name for field in narrowed(type, wanted)] if pa.types.is_struct(type) else None

    def read_all(pieces: Pieces) -> pa.Array:
        cursor = cursor_of(pieces)
        found, reasons = read(cursor.pieces(cursor.left()))
        pieces.reasons.update(reasons)
        if names is None or len(names) == type.num_fields:
            return found
        parts = dict(zip([field.name for field in type], found.flatten(), strict=True))
        return pa.StructArray.from_arrays(
            [parts[name] for name in names], fields=list(narrowed(type, wanted)), mask=found.is_null()
        )

    return read_all


def _avro_reader(reader: Schema, writer: Schema, wanted: frozenset[str] | None) -> Read:
    node = plan(parse_avro(writer.text.encode()), parse_avro(reader.text.encode()), wanted)

    def read_all(pieces: Pieces) -> pa.Array:
        cursor = cursor_of(pieces)
        found = node.read(cursor)
        check_ends(pieces, cursor)
        return found

    def read(pieces: Pieces) -> pa.Array:
        try:
            return read_all(pieces)
        except RecursionError:  # a value of a type that contains itself, which the reader passes over
            return _one_by_one(read_all, pieces, node.type)

    return read


def _one_by_one(read: Read, pieces: Pieces, type: pa.DataType) -> pa.Array:
    found: list[pa.Array] = []
    pieces.reasons.clear()
    for place in range(len(pieces)):
        one = slice(place, place + 1)
        alone = Pieces(pieces.data, pieces.starts[one], pieces.limits[one])
        try:
            found.append(read(alone))
        except RecursionError:
            alone.reasons[0] = "it is nested too deeply"
            found.append(pa.nulls(1, type))
        if alone.reasons:
            pieces.reasons[place] = alone.reasons[0]
    return pa.concat_arrays(found)


def _refusal(type: pa.DataType, reason: str) -> Read:
    def read(pieces: Pieces) -> pa.Array:
        pieces.reasons.update(dict.fromkeys(range(len(pieces)), reason))
        return pa.nulls(len(pieces), type)

    return read


@lru_cache(maxsize=100)
def _shape(schema: Schema) -> json_types.Shape:
    if schema.type == PULSAR_JSON:
        parsed = parse_avro(schema.text.encode())
        return json_types.of_avro(parsed, parsed.root)
    try:
        return json_types.of_json_schema(msgspec.json.decode(schema.text))
    except msgspec.MsgspecError as error:
        raise Invalid(f"the registry has a JSON Schema that is none: {error}") from None


# --- Protobuf: which message of its file a value is


@lru_cache(maxsize=100)
def _file(schema: Schema) -> FileDescriptor:
    return protobuf_read.descriptor_of(schema.text)


def _first_message(schema: Schema) -> Descriptor:
    return protobuf_read.message_at(_file(schema), (0,))


def _after_paths(
    writer: Schema, reader: Schema, data: Bytes, places: tuple[Ints, Ints, Ints], reasons: Reasons
) -> tuple[Ints, Ints]:
    """Rows whose message is the reader's, and where it begins: behind its path, usually a lone 0."""
    rows, begins, ends = places
    pieces = Pieces(data, begins, ends[rows])
    cursor = cursor_of(pieces)
    counts = cursor.number()
    cursor.fail((counts < 0) | (counts > _LONGEST_PATH), "it does not say which message of its schema it is")
    for place in np.flatnonzero(cursor.good() & (counts > 0)).tolist():
        one = cursor.only(np.array([place]))
        path = tuple(int(one.number()[0]) for _ in range(int(counts[place])))
        cursor.back(np.array([place]), one)
        if reader.type == PROTOBUF and (told := _other_message(writer, reader, path)):
            pieces.reasons.setdefault(place, told)
    if reader.type == PROTOBUF and (told := _other_message(writer, reader, (0,))):
        plain = np.flatnonzero(cursor.good() & (counts == 0)).tolist()
        pieces.reasons.update(dict.fromkeys(plain, told))
    reasons.update({int(rows[place]): reason for place, reason in pieces.reasons.items()})
    fine = np.array([place not in pieces.reasons for place in range(len(rows))], np.bool_)
    return rows[fine], cursor.at[fine]


@lru_cache(maxsize=1000)
def _other_message(writer: Schema, reader: Schema, path: tuple[int, ...]) -> str:
    """What is wrong with the message at `path` of the writer's schema; nothing if it is the reader's."""
    try:
        name = protobuf_read.message_at(_file(writer), path).full_name
    except Invalid as error:
        return str(error)
    wanted = _first_message(reader).full_name
    return "" if name == wanted else f"it is a {name}, not a {wanted}"
