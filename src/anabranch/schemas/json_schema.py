"""JSON Schema: whether text is one of a draft we know, where its references lead, and what it says.

A schema may say several things at once: a type, an enumeration, a combination.  For comparing, it is taken
apart into nodes that say one thing each:

    {"type": "string", "enum": ["a"]}     allOf of a `string` and an `enum`
    {"type": ["string", "null"]}          anyOf of a `string` and a `null`
    {"properties": {...}}                 an `object`, by its keywords
    true, {}                              `any`;   false is `never`

Text is checked by `jsonschema` against its draft, references are followed by `referencing`; nothing is
fetched from anywhere.  What is deep, or refers to nothing but itself, is refused.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from anabranch.schemas.avro import check_depth
from anabranch.schemas.errors import InvalidSchema, LibraryMissing

if TYPE_CHECKING:
    from referencing import Resource
    from referencing._core import Resolver

ANY, NEVER = "any", "never"
ALL_OF, ANY_OF, ONE_OF = "allOf", "anyOf", "oneOf"
COMBINED = (ALL_OF, ANY_OF, ONE_OF)
NUMBERS = ("number", "integer")

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_MAX_HOPS = 64
GARBAGE = (LookupError, ValueError, TypeError, AttributeError)
_SNIFFED = {
    "object": {
        *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
        *("minProperties", "maxProperties", "dependencies", "dependentRequired", "dependentSchemas"),
        "unevaluatedProperties",
    },
    "array": {
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems"),
        *("uniqueItems", "contains", "minContains", "maxContains"),
    },
    "string": {"minLength", "maxLength", "pattern"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}


class Parsed(NamedTuple):
    root: Any
    resolver: "Resolver[Any]"


class Node(NamedTuple):
    """One thing that a schema says.

    `told` has the keywords, `parts` what a combination is made of, looked at when somebody asks: a schema may
    be a part of itself.
    """

    kind: str
    told: Any
    resolver: "Resolver[Any]"
    parts: tuple[Callable[[], "Node"], ...] = ()

    def below(self, schema: Any) -> "Node":
        """What a schema inside of this one says."""
        return node(schema, self.resolver)

    def branches(self) -> list["Node"]:
        return [part() for part in self.parts]


def parse(text: str, imports: Mapping[str, str]) -> Parsed:
    """InvalidSchema if it is none, or refers to what is neither in it nor among `imports`."""
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft3Validator, validator_for
        from referencing import Registry, Resource
        from referencing.exceptions import CannotDetermineSpecification, Unresolvable
        from referencing.jsonschema import DRAFT7
    except ImportError as error:
        raise LibraryMissing(
            "schemas of this type need jsonschema: pip install 'anabranch[schemas]'"
        ) from error
    root = _json(text)
    check_depth(root)
    if not isinstance(root, dict | bool):
        raise InvalidSchema("this is no JSON Schema: it is neither an object nor a boolean")
    try:
        usual = validator_for({"$schema": _DRAFT_7})
        draft = usual if isinstance(root, bool) else validator_for(root, default=usual)
        if draft is Draft3Validator:
            raise InvalidSchema("this is a JSON Schema of draft 3; drafts from 4 on are known")
        draft.check_schema(root)  # type: ignore[arg-type]  # a boolean is a schema, too
        resource = Resource.from_contents(root, default_specification=DRAFT7)
        base = resource.id() or ""
        others = [(name, Resource.from_contents(_json(told), DRAFT7)) for name, told in imports.items()]
        registry: Registry[Any] = Registry().with_resources([(base, resource), *others])
        registry = registry.with_resources([(other.id() or name, other) for name, other in others]).crawl()
        resolver = registry.resolver(base)
        _check_references(resource, resolver)
    except SchemaError as error:
        raise InvalidSchema(f"this is no JSON Schema: {error.message[:300]}") from error
    except (Unresolvable, CannotDetermineSpecification, *GARBAGE) as error:
        raise InvalidSchema(f"this is no JSON Schema: {type(error).__name__} {str(error)[:300]}") from error
    except RecursionError as error:
        raise InvalidSchema("the schema is too deep") from error
    return Parsed(root, resolver)


def compact(text: str) -> str:
    """The text without white space."""
    return msgspec.json.encode(_json(text)).decode()


def normalized(text: str) -> str:
    """Without white space, keys in order."""
    return msgspec.json.encode(_json(text), order="sorted").decode()


def node(schema: Any, resolver: "Resolver[Any]") -> Node:
    """What a schema says, its references followed."""
    from referencing.exceptions import Unresolvable

    for _ in range(_MAX_HOPS):
        if isinstance(schema, bool):
            return Node(ANY if schema else NEVER, schema, resolver)
        if not isinstance(schema, dict):
            raise InvalidSchema("this is no JSON Schema: something in it is neither an object nor a boolean")
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return _said(schema, resolver)
        try:
            found = resolver.lookup(reference)
        except Unresolvable as error:
            raise InvalidSchema(f"there is nothing at {reference[:300]!r}") from error
        said = _said(schema, resolver)
        if said.kind != ANY:  # since draft 2019-09 what stands beside a reference counts
            inner = partial(node, found.contents, found.resolver)
            return Node(ALL_OF, schema, resolver, (inner, _constant(said)))
        schema, resolver = found.contents, found.resolver
    raise InvalidSchema("references lead in a circle")


def _said(schema: dict[str, Any], resolver: "Resolver[Any]") -> Node:
    said = [
        Node(kind, schema[kind], resolver, tuple(partial(node, branch, resolver) for branch in schema[kind]))
        for kind in COMBINED
        if isinstance(schema.get(kind), list)
    ]
    said += [Node(kind, schema, resolver) for kind in ("not", "const", "enum", "if") if kind in schema]
    types = schema.get("type")
    if isinstance(types, list) and len(types) > 1:
        each = tuple(partial(Node, str(kind), schema, resolver) for kind in types)
        said.append(Node(ANY_OF, types, resolver, each))
    elif types:
        said.append(Node(str(types if isinstance(types, str) else types[0]), schema, resolver))
    else:
        said += [
            Node(kind, schema, resolver)
            for kind, keywords in _SNIFFED.items()
            if not keywords.isdisjoint(schema)
        ]
    if not said:
        return Node(ANY, schema, resolver)
    return said[0] if len(said) == 1 else Node(ALL_OF, schema, resolver, tuple(map(_constant, said)))


def _constant(said: Node) -> Callable[[], Node]:
    return lambda: said


def _check_references(resource: "Resource[Any]", resolver: "Resolver[Any]") -> None:
    """InvalidSchema if a reference of it, or of anything in it, leads nowhere, in a circle or to no schema.

    Now, since no later schema could be compared with it.
    """
    if isinstance(resource.contents, dict) and isinstance(resource.contents.get("$ref"), str):
        node(resource.contents, resolver)
    for inner in resource.subresources():
        _check_references(inner, resolver.in_subresource(inner))


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidSchema(f"this is no JSON Schema: {error}") from error
