"""JSON Schema types as columns, and how a value is checked against them.

    object with properties       struct
    object without               map, if additionalProperties has a schema; else text
    array                        array of what `items` says
    string, integer, number, boolean      string, bigint, double, boolean
    null and another             the other, nullable; so in oneOf and anyOf
    anything else                text: the JSON of it

`$ref` is followed inside the document.  Only types count here: what a schema says of lengths, patterns and
what is required is the writer's business.

`Shape` has the Arrow type and the type that msgspec checks JSON against, side by side, and what is to be done
to a value that msgspec gives before Arrow takes it.  Pulsar's JSON is listed by an Avro schema; `of_avro`
makes the same of that.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pyarrow as pa

from anabranch.base.errors import Invalid
from anabranch.schemas.avro import RECORDS, Parsed
from anabranch.spark.values.avro_types import Room, kind_of, list_of, map_of, members

_MOST_DEEP = 64
_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class Shape(NamedTuple):
    type: pa.DataType
    checked: Any
    to_arrow: Callable[[Any], Any] | None = None
    """None if Arrow takes it as it is."""

    @property
    def nullable(self) -> Any:
        """The type that is checked where null is as good; raw JSON may be null anyway."""
        return self.checked if self.checked in (None, msgspec.Raw) else self.checked | None


def _text(raw: msgspec.Raw) -> str | None:
    data = bytes(raw)
    return None if data == b"null" else data.decode()


_TEXT = Shape(pa.string(), msgspec.Raw, _text)
_PLAIN = {
    "string": Shape(pa.string(), str),
    "integer": Shape(pa.int64(), _Long),
    "number": Shape(pa.float64(), float),
    "boolean": Shape(pa.bool_(), bool),
    "null": Shape(pa.null(), None),
}
_OF_AVRO = {
    "null": Shape(pa.null(), None),
    "boolean": Shape(pa.bool_(), bool),
    "int": Shape(pa.int32(), _Int),
    "long": Shape(pa.int64(), _Long),
    "float": Shape(pa.float32(), float),
    "double": Shape(pa.float64(), float),
    "string": Shape(pa.string(), str),
    "enum": Shape(pa.string(), str),
}


def of_json_schema(document: Any) -> Shape:
    return _JsonSchema(document).shape(document, 0)


class _JsonSchema:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._room = Room()

    def shape(self, schema: Any, depth: int) -> Shape:
        self._room.take()
        if depth > _MOST_DEEP:
            raise Invalid("the JSON Schema contains itself, or is too deep to be columns")
        if not isinstance(schema, dict):
            return _TEXT
        if "$ref" in schema:
            return self.shape(self._found(str(schema["$ref"])), depth + 1)
        for several in ("oneOf", "anyOf"):
            if several in schema:
                return self._one_of(schema[several], depth)
        kinds = schema.get("type", "object" if "properties" in schema else None)
        kinds = [one for one in (kinds if isinstance(kinds, list) else [kinds]) if one != "null"]
        if len(kinds) != 1:
            return _TEXT
        if kinds[0] == "object":
            return self._object(schema, depth)
        if kinds[0] == "array":
            inner = self.shape(schema.get("items"), depth + 1)
            return _array(inner)
        return _PLAIN.get(kinds[0], _TEXT) if isinstance(kinds[0], str) else _TEXT

    def _one_of(self, choices: Any, depth: int) -> Shape:
        some = [one for one in choices if one != {"type": "null"}] if isinstance(choices, list) else []
        return self.shape(some[0], depth + 1) if len(some) == 1 else _TEXT

    def _object(self, schema: Any, depth: int) -> Shape:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return struct({name: self.shape(one, depth + 1) for name, one in properties.items()})
        others = schema.get("additionalProperties")
        if not isinstance(others, dict) or not others:
            return _TEXT
        return _map(self.shape(others, depth + 1))

    def _found(self, reference: str) -> Any:
        at = self._document
        if not reference.startswith("#"):
            return None
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            at = at.get(name) if isinstance(at, dict) else None
        return at


def of_avro(parsed: Parsed, schema: Any, depth: int = 0, room: Room | None = None) -> Shape:
    """What an Avro schema says of JSON."""
    room = room or Room()
    room.take()
    if depth > _MOST_DEEP:
        raise Invalid("the schema contains itself, or is too deep to be columns")
    schema = parsed.resolve(schema)
    kind = kind_of(schema)
    if kind == "union":
        choices = members(parsed, schema)
        return of_avro(parsed, choices[0], depth + 1, room) if len(choices) == 1 else _TEXT
    if kind in RECORDS:
        return struct(
            {one["name"]: of_avro(parsed, one["type"], depth + 1, room) for one in schema["fields"]}
        )
    if kind == "array":
        inner = of_avro(parsed, schema["items"], depth + 1, room)
        return _array(inner)
    if kind == "map":
        return _map(of_avro(parsed, schema["values"], depth + 1, room))
    return _OF_AVRO.get(kind, _TEXT)


def struct(parts: dict[str, Shape]) -> Shape:
    """An object with these members, each of which may be missing."""
    checked = TypedDict("Members", {name: one.nullable for name, one in parts.items()}, total=False)  # type: ignore[misc]
    changes = {name: one.to_arrow for name, one in parts.items() if one.to_arrow is not None}

    def changed(value: Any) -> Any:
        return {
            name: changes[name](one) if one is not None and name in changes else one
            for name, one in value.items()
        }

    type = pa.struct([(name, one.type) for name, one in parts.items()])
    return Shape(type, checked, changed if changes else None)


def _array(inner: Shape) -> Shape:
    change = inner.to_arrow

    def changed(value: Any) -> Any:
        assert change is not None
        return [None if one is None else change(one) for one in value]

    return Shape(list_of(inner.type), list[inner.nullable], changed if change else None)  # type: ignore[name-defined]


def _map(inner: Shape) -> Shape:
    change = inner.to_arrow

    def changed(value: Any) -> Any:
        if change is None:
            return list(value.items())
        return [(name, None if one is None else change(one)) for name, one in value.items()]

    return Shape(map_of(inner.type), dict[str, inner.nullable], changed)  # type: ignore[name-defined]
