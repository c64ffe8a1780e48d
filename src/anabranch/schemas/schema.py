"""A schema as Kafka's clients register it: AVRO, JSON (JSON Schema) or PROTOBUF text, and what it refers to.

`references` name versions of subjects whose schemas the text uses by those names.  `metadata` and `rule_set`
are for clients, who act on them; here they only make a schema another one.  `compiled` is a Protobuf file's
descriptor: to have it again from the text would take a compiler.
"""

import sys
from typing import Any

import msgspec

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)

MAX_EXTRAS_BYTES = 64 << 10

_LIBRARIES = {AVRO: "fastavro.schema", JSON: "jsonschema.validators"}


class Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    type: str = AVRO
    references: list[Reference] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    compiled: bytes = b""
    guid: str = ""  # of one that is kept

    def group(self, name: str) -> Any:
        """What the metadata says under `name`, by which schemas may be compared in groups."""
        properties = (self.metadata or {}).get("properties")
        return properties.get(name) if isinstance(properties, dict) else None


def takes_long(schema: Schema) -> bool:
    """Whether to read it takes longer than its size tells: by a compiler, or a library to be loaded first."""
    if schema.type == PROTOBUF:
        return not schema.compiled
    return not is_loaded(schema.type)


def is_loaded(type: str) -> bool:
    """Whether what looks into schemas of a type has been loaded."""
    return _LIBRARIES.get(type, "sys") in sys.modules
