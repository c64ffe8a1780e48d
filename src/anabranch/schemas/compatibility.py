"""Schema compatibility, Pulsar's: whether a definition is valid, and whether it may follow another.

    AVRO, JSON, PROTOBUF    Avro's schema resolution (`schemas/avro_resolution.py`)
    PROTOBUF_NATIVE         the message may change, it must stay the same message
    KEY_VALUE               the types of key and value stay, and each may follow its own
    the others              there is nothing to differ in

A definition of another type never follows, except where everything does.
"""

import binascii
import hashlib
from base64 import b64decode
from typing import NamedTuple

import msgspec
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from anabranch.schemas import avro, avro_resolution
from anabranch.schemas.definition import (
    BY_AVRO,
    KEY_VALUE,
    PROTOBUF_NATIVE,
    Definition,
    check_size,
    key_and_value,
)
from anabranch.schemas.errors import InvalidSchema
from anabranch.schemas.strategy import Strategy


class Checked(NamedTuple):
    """A definition that is one; those with the same `form` mean the same."""

    definition: Definition
    form: str


class Native(msgspec.Struct, rename="camel"):
    """How Pulsar's clients define PROTOBUF_NATIVE."""

    file_descriptor_set: str
    root_message_type_name: str
    root_file_descriptor_name: str

    @property
    def files(self) -> descriptor_pb2.FileDescriptorSet:
        packed = b64decode(self.file_descriptor_set, validate=True)
        return descriptor_pb2.FileDescriptorSet.FromString(packed)


def check(definition: Definition) -> Checked:
    """InvalidSchema if it is none of its type."""
    check_size(definition)
    return Checked(definition, hashlib.sha256(_form(definition)).hexdigest())


def why_not(new: Definition, old: Definition, strategy: Strategy) -> str | None:
    """Why `new` may not follow `old`; None if it may.  Both have been checked."""
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return None
    if new.type != old.type:
        return f"Incompatible schema: exists schema type {old.type}, new schema type {new.type}"
    if strategy is Strategy.ALWAYS_INCOMPATIBLE:
        return "the schema cannot change: its strategy is ALWAYS_INCOMPATIBLE"
    if new.type in BY_AVRO:
        return _why_not_avro(new.data, old.data, strategy)
    if new.type == PROTOBUF_NATIVE:
        before, after = native(old.data).root_message_type_name, native(new.data).root_message_type_name
        return None if before == after else f"the message is {before}, it cannot become {after}"
    if new.type == KEY_VALUE:
        pairs = zip(key_and_value(new), key_and_value(old), strict=True)
        return next(filter(None, (why_not(part, was, strategy) for part, was in pairs)), None)
    return None


def _why_not_avro(new: bytes, old: bytes, strategy: Strategy) -> str | None:
    after, before = avro.parse(new), avro.parse(old)
    problem = _first(after, before) if strategy.reads_old else None
    if problem is not None:
        return f"the new schema cannot read what was written: {problem}"
    problem = _first(before, after) if strategy.is_read_by_old else None
    return None if problem is None else f"those who know the schema so far cannot read the new: {problem}"


def _first(reader: avro.Parsed, writer: avro.Parsed) -> str | None:
    found = avro_resolution.differences(reader, writer, strict=False)
    return found[0].plain if found else None


def _form(definition: Definition) -> bytes:
    type = definition.type
    if type in BY_AVRO:
        avro.parse(definition.data)
        return type.encode() + b"\0" + avro.normal_form(definition.data)
    if type == KEY_VALUE:
        return b"\0".join([type.encode(), *map(_form_digest, key_and_value(definition))])
    if type == PROTOBUF_NATIVE:
        native(definition.data)
    return type.encode() + b"\0" + definition.data


def _form_digest(definition: Definition) -> bytes:
    return hashlib.sha256(_form(definition)).digest()


def native(data: bytes) -> Native:
    """A definition of PROTOBUF_NATIVE, taken apart."""
    try:
        told = msgspec.json.decode(data, type=Native)
        files = told.files
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error, ValueError, DecodeError) as error:
        raise InvalidSchema(f"this is no definition of a Protobuf message: {str(error)[:300]}") from error
    if told.root_file_descriptor_name not in {file.name for file in files.file}:
        raise InvalidSchema(f"the file {told.root_file_descriptor_name[:300]!r} is not among the descriptors")
    return told
