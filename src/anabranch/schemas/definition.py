"""A schema as clients bring it: a type, the bytes that define it, and properties that mean nothing to us.

Types have Pulsar's names.  AVRO, JSON and PROTOBUF are defined by an Avro schema, PROTOBUF_NATIVE by
descriptors, KEY_VALUE by two schemas in one, and the others, primitives, by their name alone:

    KEY_VALUE    i32 size | the key's definition | i32 size | the value's definition
                 with the types of both in the properties key.schema.type and value.schema.type

Sizes are bounded here, before anybody looks inside.
"""

import hashlib
import struct

import msgspec

from anabranch.schemas.errors import InvalidSchema

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
PROTOBUF_NATIVE, KEY_VALUE = "PROTOBUF_NATIVE", "KEY_VALUE"
BY_AVRO = frozenset({AVRO, JSON, PROTOBUF})

MAX_DEFINITION_BYTES = 256 << 10
MAX_PROPERTIES_BYTES = 16 << 10

_SIZE = struct.Struct(">i")


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    data: bytes = b""
    properties: dict[str, str] = {}

    @property
    def digest(self) -> str:
        """The same for what is the same to the last byte."""
        sums = hashlib.sha256()
        for part in (self.type.encode(), self.data, msgspec.json.encode(self.properties, order="sorted")):
            sums.update(_SIZE.pack(len(part)) + part)
        return sums.hexdigest()


def check_size(definition: Definition) -> None:
    """InvalidSchema if it is more than we look at."""
    size = len(definition.data)
    if size > MAX_DEFINITION_BYTES:
        raise InvalidSchema(f"a schema of {size} bytes is too large, the limit is {MAX_DEFINITION_BYTES}")
    said = sum(len(name) + len(value) for name, value in definition.properties.items())
    if said > MAX_PROPERTIES_BYTES:
        raise InvalidSchema(
            f"{said} characters of properties are too many for a schema, the limit is {MAX_PROPERTIES_BYTES}"
        )


def key_and_value(definition: Definition) -> tuple[Definition, Definition]:
    """The two schemas inside one of KEY_VALUE."""
    key, rest = _sized(definition.data)
    value, rest = _sized(rest)
    if rest:
        raise InvalidSchema("there is more in a KEY_VALUE schema than a key's and a value's")
    properties = definition.properties
    for name in ("key.schema.type", "value.schema.type"):
        if properties.get(name, KEY_VALUE) == KEY_VALUE:
            raise InvalidSchema(f"a KEY_VALUE schema has the property {name}, which is not KEY_VALUE again")
    return Definition(properties["key.schema.type"], key), Definition(properties["value.schema.type"], value)


def of_key_and_value(key: bytes, value: bytes) -> bytes:
    """The definition of KEY_VALUE from those of both."""
    return b"".join(_SIZE.pack(len(part)) + part for part in (key, value))


def _sized(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _SIZE.size:
        raise InvalidSchema("a KEY_VALUE schema is cut short")
    size = max(0, _SIZE.unpack_from(data)[0])  # Java writes -1 for none
    end = _SIZE.size + size
    if end > len(data):
        raise InvalidSchema("a KEY_VALUE schema is cut short")
    return data[_SIZE.size : end], data[end:]
