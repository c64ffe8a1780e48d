"""Avro schemas: whether text is one, what is the same, and how it reads without references.

The text is taken apart by fastavro, which knows the rules of names.  Three forms of one schema:

    normal form     keys in order, documentation left out: the same to Pulsar's clients
    identity        keys in order, names in full: the same to Kafka's, who count documentation
    inlined         what it refers to elsewhere stands where it is first used

A text may be deep, wide or refer to itself: depth is bounded before anybody recurses.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from anabranch.schemas.errors import InvalidSchema, LibraryMissing

MAX_DEPTH = 64
RECORDS = ("record", "error")

_NAMED = (*RECORDS, "enum", "fixed")
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


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


def parse(data: bytes, imports: Iterable[bytes] = ()) -> Parsed:
    """InvalidSchema if it is none; `imports` define names that it may use."""
    try:
        from fastavro.schema import SchemaParseException, parse_schema
    except ImportError as error:
        raise LibraryMissing(
            "schemas of this type need fastavro: pip install 'anabranch[schemas]'"
        ) from error
    named: dict[str, Any] = {}
    root: Any = None
    for part in (*imports, data):
        text = _json(part)
        check_depth(text)
        try:
            root = parse_schema(text, named_schemas=named)
        except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError) as error:
            told = f"{type(error).__name__} {str(error)[:300]}"
            raise InvalidSchema(f"this is no Avro schema: {told}") from error
    _check_fields(named)
    return Parsed(root, named)


def check_rules(data: bytes) -> None:
    """InvalidSchema if it breaks a rule that Avro's own parser sees to and fastavro, who took it, has not."""
    _check_rules(_in_full(_json(data), ""))


def normal_form(data: bytes) -> bytes:
    """The same for what means the same: without white space and documentation, keys in order."""
    return msgspec.json.encode(_without_doc(_json(data)), order="sorted")


def identity(data: bytes) -> bytes:
    """The same for what differs in white space, the order of keys and how names are written, alone."""
    return msgspec.json.encode(_in_full(_json(data), ""), order="sorted")


def compact(data: bytes) -> str:
    """The text as it is, without white space."""
    return msgspec.json.encode(_json(data)).decode()


def inlined(data: bytes, imports: Iterable[bytes]) -> bytes:
    """The text with the definitions that it takes from `imports`, each where its name comes first."""
    known: dict[str, Any] = {}
    for part in imports:
        _collect(_in_full(_json(part), ""), known)
    return msgspec.json.encode(_inlined(_in_full(_json(data), ""), known, set()))


def check_depth(text: Any) -> None:
    """InvalidSchema if `text` is nested deeper than we follow."""
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


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSchema(f"this is no Avro schema: {error}") from error


def _check_fields(named: dict[str, Any]) -> None:
    """Names must be names: fastavro takes them as they are."""
    for schema in named.values():
        for field in schema.get("fields", ()):
            names = [field["name"], *field.get("aliases", ())]
            if not all(isinstance(name, str) for name in names):
                raise InvalidSchema(f"a field of {schema['name']} has a name that is no text")


def _check_rules(schema: Any) -> None:
    """Of a schema whose names are in full."""
    if isinstance(schema, list):
        _check_union(schema)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in _NAMED:
            _check_name(schema["name"].rpartition(".")[2])
            if schema["name"] in _PRIMITIVES:
                raise InvalidSchema(f"a type that is defined cannot be called {schema['name']}")
        if kind in RECORDS:
            _check_record(schema)
        elif kind == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidSchema(f"{schema['name']} has a size that is none")
        elif kind != "enum":
            for inner in ("type", "items", "values"):
                _check_rules(schema.get(inner))


def _check_union(branches: list[Any]) -> None:
    kinds = set()
    for branch in branches:
        kind = branch.get("type") if isinstance(branch, dict) else branch
        if isinstance(kind, list):
            raise InvalidSchema("a union stands in a union")
        told = str(branch["name"] if kind in _NAMED else kind)
        if told in kinds:
            raise InvalidSchema(f"a union has {told[:300]} twice")
        kinds.add(told)
        _check_rules(branch)


def _check_record(record: dict[str, Any]) -> None:
    fields = record.get("fields")
    if not isinstance(fields, list):
        raise InvalidSchema(f"the record {record['name']} has no fields")
    names = set()
    for field in fields:
        _check_name(field["name"])
        if field["name"] in names:
            raise InvalidSchema(f"{record['name']} has two fields {field['name']}")
        names.add(field["name"])
        _check_rules(field["type"])


def _check_name(name: str) -> None:
    """By letters of any language, as Avro's parser has it."""
    is_name = all(letter.isalnum() or letter == "_" for letter in name) and not name[:1].isdecimal()
    if not name or not is_name:
        raise InvalidSchema(f"{name[:300]!r} is no name")


def _without_doc(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_doc(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_doc(item) for name, item in value.items() if name != "doc"}
    return value


def _in_full(schema: Any, namespace: str) -> Any:
    """With every name in full, and what is wrapped for no reason unwrapped."""
    if isinstance(schema, list):
        return [_in_full(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        is_full = schema in _PRIMITIVES or "." in schema or not namespace
        return schema if is_full else f"{namespace}.{schema}"
    if not isinstance(schema, dict):
        return schema
    kind, told = schema.get("type"), dict(schema)
    if kind in _NAMED:
        name, space = str(told.get("name", "")), told.pop("namespace", None)
        space = namespace if space is None else str(space)
        told["name"] = name if "." in name or not space else f"{space}.{name}"
        namespace = told["name"].rpartition(".")[0]
        fields = told.get("fields")
        if isinstance(fields, list):
            told["fields"] = [_field(field, namespace) for field in fields]
        return told
    for inner in ("items", "values"):
        if inner in told and kind in ("array", "map"):
            told[inner] = _in_full(told[inner], namespace)
    if kind not in ("array", "map"):
        told["type"] = _in_full(kind, namespace)
        if len(told) == 1:
            return told["type"]
    return told


def _field(field: Any, namespace: str) -> Any:
    if not isinstance(field, dict) or "type" not in field:
        return field
    return {**field, "type": _in_full(field["type"], namespace)}


def _collect(schema: Any, known: dict[str, Any]) -> None:
    """Put every named type of a schema in full into `known`."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, known)
    elif isinstance(schema, dict):
        if schema.get("type") in _NAMED:
            known[schema["name"]] = schema
            for field in schema.get("fields", ()):
                _collect(field["type"], known)
        else:
            _collect([schema.get(inner) for inner in ("type", "items", "values")], known)


def _inlined(schema: Any, known: dict[str, Any], done: set[str]) -> Any:
    if isinstance(schema, list):
        return [_inlined(branch, known, done) for branch in schema]
    if isinstance(schema, str):
        return _inlined(known[schema], known, done) if schema in known and schema not in done else schema
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED:
        name = schema["name"]
        if name in done:
            return name
        done.add(name)
        if "fields" in schema:
            fields = [{**field, "type": _inlined(field["type"], known, done)} for field in schema["fields"]]
            return {**schema, "fields": fields}
        return schema
    told = dict(schema)
    for inner in ("type", "items", "values"):
        if inner in told:
            told[inner] = _inlined(told[inner], known, done)
    return told
