"""Avro schemas: whether text is one, its normal form, and whether one can read what another wrote.

The text is taken apart by fastavro, which knows the rules of names; what is asked here of the outcome is
schema resolution as Avro's specification has it and Pulsar's brokers apply it:

    reader            writer          can read
    long              int             yes, and float, double; string and bytes go for each other
    a union           anything        if a branch of it can
    anything          a union         if it can read each branch
    record            record          if each field of the reader's is in the writer's or has a default

The names of records are not compared, those of enumerations and fixed types are; the symbols of enumerations
are not, since only the message that has one which the reader lacks cannot be read.

A text may be deep, wide or refer to itself: depth is bounded before anybody recurses, steps are counted, and
a pair of named types that is being looked at is taken to be readable.
"""

from typing import Any, NamedTuple

import msgspec

from anabranch.schemas.errors import InvalidSchema, LibraryMissing

MAX_DEPTH = 64
MAX_STEPS = 100_000

_PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}
_RECORDS = ("record", "error")


class Parsed(NamedTuple):
    root: Any
    named: dict[str, Any]

    def resolve(self, schema: Any) -> Any:
        """A schema whose type says what it is: no reference to a name, nothing wrapped."""
        while True:
            if isinstance(schema, str) and schema in self.named:
                return self.named[schema]
            if not isinstance(schema, dict) or "name" in schema:
                return schema
            inner = schema["type"]
            if not isinstance(inner, dict | list) and inner not in self.named:
                return schema
            schema = inner


def parse(data: bytes) -> Parsed:
    """InvalidSchema if it is none."""
    try:
        from fastavro.schema import SchemaParseException, parse_schema
    except ImportError as error:
        raise LibraryMissing(
            "schemas of this type need fastavro: pip install 'anabranch[schemas]'"
        ) from error
    text = _json(data)
    _check_depth(text)
    named: dict[str, Any] = {}
    try:
        root = parse_schema(text, named_schemas=named)
    except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"this is no Avro schema: {type(error).__name__} {str(error)[:300]}") from error
    _check_fields(named)
    return Parsed(root, named)


def normal_form(data: bytes) -> bytes:
    """The same for what means the same: without white space and documentation, keys in order."""
    return msgspec.json.encode(_without_doc(_json(data)), order="sorted")


def why_not(reader: Parsed, writer: Parsed) -> str | None:
    """Why `reader` cannot read what was written by `writer`; None if it can."""
    return _Resolution(reader, writer).problem(reader.root, writer.root, "")


class _Resolution:
    def __init__(self, reader: Parsed, writer: Parsed) -> None:
        self._reader = reader
        self._writer = writer
        self._seen: dict[tuple[str, str], str | None] = {}
        self._steps = 0

    def problem(self, reader: Any, writer: Any, at: str) -> str | None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidSchema("the schemas are too intricate to be compared")
        reader, writer = self._reader.resolve(reader), self._writer.resolve(writer)
        if isinstance(writer, list):
            return next(filter(None, (self.problem(reader, branch, at) for branch in writer)), None)
        if isinstance(reader, list):
            if any(self.problem(branch, writer, at) is None for branch in reader):
                return None
            return f"no branch of the reader's union at {at or '/'} reads {_type(writer)}"
        return self._of_one(reader, writer, at)

    def _of_one(self, reader: Any, writer: Any, at: str) -> str | None:
        kind, other = _type(reader), _type(writer)
        if kind in _RECORDS and other in _RECORDS:
            return self._of_records(reader, writer, at)
        if kind != other:
            is_promoted = other in _PROMOTED.get(kind, ())
            return None if is_promoted else f"{other} cannot be read as {kind} at {at or '/'}"
        if kind == "array":
            return self.problem(reader["items"], writer["items"], f"{at}/items")
        if kind == "map":
            return self.problem(reader["values"], writer["values"], f"{at}/values")
        if kind in ("fixed", "enum") and reader["name"] != writer["name"]:
            return f"{writer['name']} cannot be read as {reader['name']} at {at or '/'}"
        if kind == "fixed" and reader["size"] != writer["size"]:
            return f"{writer['name']} has {writer['size']} bytes, not {reader['size']}, at {at or '/'}"
        return None

    def _of_records(self, reader: Any, writer: Any, at: str) -> str | None:
        pair = (reader["name"], writer["name"])
        if pair in self._seen:
            return self._seen[pair]
        self._seen[pair] = None
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            source = next((written[name] for name in names if name in written), None)
            place = f"{at}/{field['name']}"
            if source is not None:
                problem = self.problem(field["type"], source["type"], place)
            else:
                problem = None if "default" in field else f"the writer has no {place}, and it has no default"
            if problem is not None:
                self._seen[pair] = problem
                return problem
        return None


def _type(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSchema(f"this is no Avro schema: {error}") from error


def _check_depth(text: Any) -> None:
    level, depth = [text], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"the schema is more than {MAX_DEPTH} levels deep")
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
        level = inner


def _check_fields(named: dict[str, Any]) -> None:
    """Names must be names: fastavro takes them as they are."""
    for schema in named.values():
        for field in schema.get("fields", ()):
            names = [field["name"], *field.get("aliases", ())]
            if not all(isinstance(name, str) for name in names):
                raise InvalidSchema(f"a field of {schema['name']} has a name that is no text")


def _without_doc(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_doc(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_doc(item) for name, item in value.items() if name != "doc"}
    return value
