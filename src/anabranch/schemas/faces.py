"""Schemas across protocols: what one that Pulsar's clients brought is to Kafka's, and the reverse.

    Pulsar                              Kafka
    AVRO                            <-> AVRO, with what it refers to in its text
    PROTOBUF_NATIVE                 <-> PROTOBUF; a root message there, a file here: its first message
    KEY_VALUE                       <-> two schemas, in the subjects of the topic's keys and of its values
    JSON (an Avro schema)            -  JSON (a JSON Schema)
    PROTOBUF (an Avro schema), primitives: Pulsar's alone

What the other kind has no type for, it does not see.
"""

from base64 import b64encode

import msgspec
from google.protobuf import descriptor_pb2

from anabranch.schemas import definition as pulsar
from anabranch.schemas import protobuf, reading, schema
from anabranch.schemas.compatibility import Native, native
from anabranch.schemas.definition import Definition, key_and_value, of_key_and_value
from anabranch.schemas.errors import InvalidSchema, LibraryMissing
from anabranch.schemas.reading import Imports, Reading


def for_kafka(definition: Definition) -> Reading | None:
    """What Kafka's clients see of what a Pulsar client brought: of a key and a value, the value."""
    if definition.type == pulsar.KEY_VALUE:
        return for_kafka(key_and_value(definition)[1])
    try:
        text = _text(definition)
        if text is None:
            return None
        type = schema.AVRO if definition.type == pulsar.AVRO else schema.PROTOBUF
        return reading.read(schema.Schema(text, type), {})
    except (InvalidSchema, LibraryMissing, UnicodeDecodeError):
        return None  # it is not for them, then


def key_for_kafka(definition: Definition) -> Reading | None:
    """The same of the key."""
    return for_kafka(key_and_value(definition)[0]) if definition.type == pulsar.KEY_VALUE else None


def for_pulsar(told: Reading, imports: Imports) -> Definition | None:
    """What Pulsar's clients see of what a Kafka client brought."""
    if isinstance(told.tree, protobuf.Parsed) and told.tree.file.message_type:
        seen = Definition(pulsar.PROTOBUF_NATIVE, _as_native(told.tree))
    elif told.schema.type == schema.AVRO:
        text = reading.formatted(told.schema, imports, "resolved") if imports else told.schema.text
        seen = Definition(pulsar.AVRO, text.encode())
    else:
        return None
    return seen if len(seen.data) <= pulsar.MAX_DEFINITION_BYTES else None


def with_value(pair: Definition, value: Definition) -> Definition:
    """A key and a value, with another value."""
    return _paired(pair, key_and_value(pair)[0], value)


def with_key(pair: Definition, key: Definition) -> Definition:
    """A key and a value, with another key."""
    return _paired(pair, key, key_and_value(pair)[1])


def _paired(pair: Definition, key: Definition, value: Definition) -> Definition:
    types = {"key.schema.type": key.type, "value.schema.type": value.type}
    return Definition(pulsar.KEY_VALUE, of_key_and_value(key.data, value.data), {**pair.properties, **types})


def _text(definition: Definition) -> str | None:
    if definition.type == pulsar.AVRO:
        return definition.data.decode()
    if definition.type != pulsar.PROTOBUF_NATIVE:
        return None
    told = native(definition.data)
    file = next(file for file in told.files.file if file.name == told.root_file_descriptor_name)
    if not all(protobuf.well_known(name) for name in file.dependency):
        return None  # what it imports is in no subject
    return protobuf.serialized(file.SerializeToString())


def _as_native(tree: protobuf.Parsed) -> bytes:
    files = descriptor_pb2.FileDescriptorSet(file=[*tree.imports.values(), tree.file])
    package = f"{tree.file.package}." if tree.file.package else ""
    packed = b64encode(files.SerializeToString()).decode()
    return msgspec.json.encode(Native(packed, package + tree.file.message_type[0].name, tree.file.name))
