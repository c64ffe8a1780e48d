"""Schemas of Kafka's clients: whether text is one, which are the same, whether one may follow another.

What a type means is in a file of its own; here is what they have in common.

    Schema, as it came  ──read──>  Reading: the schema as it is kept, and what it says
    Reading, Reading    ──why_not──>  lines that say what keeps one from reading what the other wrote

The guid is made of all that makes a schema itself: its type, what it says, what it refers to, metadata and
rules.  So the same schema has the same guid everywhere, and one id here.
"""

import hashlib
import uuid
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from anabranch.schemas import (
    avro,
    avro_resolution,
    json_comparison,
    json_schema,
    protobuf,
    protobuf_comparison,
    protobuf_text,
)
from anabranch.schemas.definition import MAX_DEFINITION_BYTES
from anabranch.schemas.difference import Difference
from anabranch.schemas.errors import InvalidSchema, SchemaTooLarge
from anabranch.schemas.schema import AVRO, JSON, MAX_EXTRAS_BYTES, PROTOBUF, Schema
from anabranch.schemas.strategy import Strategy

Tree = avro.Parsed | json_schema.Parsed | protobuf.Parsed
Imports = Mapping[str, Schema]
"""What a schema refers to, by the names that it uses, and what those refer to in turn: those first."""

_SHOWN_CHARACTERS = 5000


class Reading(NamedTuple):
    schema: Schema
    tree: Tree


def check_size(schema: Schema) -> None:
    """SchemaTooLarge if it is more than we look at."""
    size = len(schema.text.encode("utf-8", "surrogatepass"))
    if size > MAX_DEFINITION_BYTES:
        raise SchemaTooLarge(f"a schema of {size} bytes is too large, the limit is {MAX_DEFINITION_BYTES}")
    extras = msgspec.json.encode((schema.metadata, schema.rule_set))
    if len(extras) > MAX_EXTRAS_BYTES:
        raise SchemaTooLarge(
            f"{len(extras)} bytes of metadata and rules are too many, the limit is {MAX_EXTRAS_BYTES}"
        )


def read(schema: Schema, imports: Imports, *, normalize: bool = False) -> Reading:
    """InvalidSchema if it is none of its type."""
    if not schema.text.strip():
        raise InvalidSchema("the schema is empty")
    tree = tree_of(schema, imports)
    compiled = b""
    if isinstance(tree, protobuf.Parsed):
        said, compiled = protobuf.identity(tree.file), tree.file.SerializeToString()
        as_it_came = protobuf.is_text(schema.text) and not normalize
        text = schema.text if as_it_came else protobuf_text.text_of(tree.file)
        if len(compiled) > MAX_DEFINITION_BYTES:
            raise SchemaTooLarge(f"a descriptor of {len(compiled)} bytes is too large")
    elif schema.type == JSON:
        text = json_schema.normalized(schema.text) if normalize else json_schema.compact(schema.text)
        said = text.encode()
    else:
        data = schema.text.encode()
        avro.check_rules(data)
        said = avro.identity(data)
        text = said.decode() if normalize else avro.compact(data)
    guid = _guid(schema, said)
    kept = Schema(text, schema.type, schema.references, schema.metadata, schema.rule_set, compiled, guid)
    return Reading(kept, tree)


def tree_of(schema: Schema, imports: Imports) -> Tree:
    """What a schema says; one that is kept already needs no compiler."""
    if schema.type == AVRO:
        return avro.parse(_encoded(schema.text), [told.text.encode() for told in imports.values()])
    if schema.type == JSON:
        return json_schema.parse(schema.text, {name: told.text for name, told in imports.items()})
    if schema.type == PROTOBUF:
        descriptors = {name: told.compiled for name, told in imports.items()}
        text = protobuf.serialized(schema.compiled) if schema.compiled else schema.text
        return protobuf.parse(text, descriptors)
    raise InvalidSchema(f"no schema is of type {schema.type[:100]!r}")


def why_not(
    new: Schema, old: Schema, imports: tuple[Imports, Imports], strategy: Strategy, *, lenient: bool
) -> list[str]:
    """What keeps `new` from following `old`, one per line; nothing if it may.  Both have been read."""
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return []
    if strategy is Strategy.ALWAYS_INCOMPATIBLE:
        return ["the schema cannot change: its strategy is ALWAYS_INCOMPATIBLE"]
    if new.type != old.type:
        return [f"the schema was of type {old.type}, it cannot become {new.type}"]
    after, before = tree_of(new, imports[0]), tree_of(old, imports[1])
    told: list[str] = []
    if strategy.reads_old:
        told += [one.told("new", "old") for one in _differences(after, before, lenient)]
    if strategy.is_read_by_old:
        told += [one.told("old", "new") for one in _differences(before, after, lenient)]
    return told


def is_inlined(schema: Schema, other: Schema, imports: Imports) -> bool:
    """Whether a schema is another one with what that refers to in its text, as Avro's can be."""
    if schema.type != AVRO or (schema.metadata, schema.rule_set) != (other.metadata, other.rule_set):
        return False
    whole = avro.inlined(other.text.encode(), [told.text.encode() for told in imports.values()])
    return avro.identity(whole) == avro.identity(schema.text.encode())


def shown(schema: Schema) -> str:
    """As much of a schema's text as an error shows."""
    is_short = len(schema.text) <= _SHOWN_CHARACTERS
    return schema.text if is_short else f"{schema.text[:_SHOWN_CHARACTERS]}..."


def formatted(schema: Schema, imports: Imports, format: str) -> str:
    """The text in a form that somebody asks for by name; as it is, if its type has no such form."""
    if schema.type == PROTOBUF and format == "serialized":
        return protobuf.serialized(schema.compiled)
    if schema.type == AVRO and format == "resolved":
        return avro.inlined(schema.text.encode(), [told.text.encode() for told in imports.values()]).decode()
    return schema.text


def _differences(reader: Tree, writer: Tree, lenient: bool) -> list[Difference]:
    if isinstance(reader, avro.Parsed) and isinstance(writer, avro.Parsed):
        return avro_resolution.differences(reader, writer, strict=True)
    if isinstance(reader, json_schema.Parsed) and isinstance(writer, json_schema.Parsed):
        return json_comparison.differences(reader, writer, lenient=lenient)
    assert isinstance(reader, protobuf.Parsed)
    assert isinstance(writer, protobuf.Parsed)
    return protobuf_comparison.differences(reader, writer)


def _guid(schema: Schema, said: bytes) -> str:
    sums = hashlib.sha256(schema.type.encode() + b"\0")
    extras = (schema.references, schema.metadata, schema.rule_set)
    for part in (said, msgspec.json.encode(extras, order="sorted")):
        sums.update(len(part).to_bytes(8, "big") + part)
    return str(uuid.UUID(bytes=sums.digest()[:16]))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema(f"the schema is not UTF-8: {error}") from error
