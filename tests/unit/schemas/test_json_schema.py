"""JSON Schemas: what may follow what, where references lead, and texts that are meant to hurt."""

import json
from contextlib import suppress
from typing import Any

import pytest

from anabranch.schemas import json_comparison, json_schema
from anabranch.schemas.errors import InvalidSchema

STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
CLOSED = {"additionalProperties": False}


def parsed(schema: Any, **imports: Any) -> json_schema.Parsed:
    return json_schema.parse(json.dumps(schema), {name: json.dumps(told) for name, told in imports.items()})


def kinds(old: Any, new: Any, *, lenient: bool = False) -> set[str]:
    found = json_comparison.differences(parsed(new), parsed(old), lenient=lenient)
    return {one.kind for one in found}


def has(*required: str, more: Any = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **(more or {})}


FINE = {
    "the same": (has(a=STRING), has(a=STRING)),
    "to anything": (STRING, {}),
    "from never": (False, STRING),
    "integer to number": (INTEGER, NUMBER),
    "wider": ({**NUMBER, "minimum": 1, "maximum": 5}, {**NUMBER, "minimum": 0}),
    "a smaller multiple": ({**NUMBER, "multipleOf": 0.3}, {**NUMBER, "multipleOf": 0.1}),
    "longer": ({**STRING, "maxLength": 3}, {**STRING, "maxLength": 4}),
    "optional to a closed one": (has(more=CLOSED), has(a=STRING, more=CLOSED)),
    "required with default to a closed one": (
        has(more=CLOSED),
        has("a", a={**STRING, "default": ""}, more=CLOSED),
    ),
    "a property gone from an open one": (has(a=STRING), has()),
    "a property that others cover": (
        has(more={"additionalProperties": STRING}),
        has(a=STRING, more={"additionalProperties": STRING}),
    ),
    "a property gone that a pattern covers": (
        has(x_a=STRING, more=CLOSED),
        has(more={**CLOSED, "patternProperties": {"^x_": STRING}}),
    ),
    "no longer required": (has("a", a=STRING), has(a=STRING)),
    "an enum with more": ({"enum": [1]}, {"enum": [1, "2"]}),
    "typed enum with more": ({**STRING, "enum": ["a"]}, {**STRING, "enum": ["a", "b"]}),
    "a sum with more": ({"oneOf": [STRING]}, {"oneOf": [NUMBER, STRING]}),
    "into a sum": (STRING, {"anyOf": [NUMBER, STRING]}),
    "types with more": ({"type": ["string", "null"]}, {"type": ["null", "string", "number"]}),
    "a product with less": ({"allOf": [STRING, {**STRING, "maxLength": 3}]}, {"allOf": [STRING]}),
    "not: narrower": ({"not": NUMBER}, {"not": INTEGER}),
    "items wider": ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}),
    "an item to a closed tuple": (
        {"items": [STRING], "additionalItems": False},
        {"items": [STRING, NUMBER], "additionalItems": False},
    ),
    "draft 4's exclusive limits": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 5, "exclusiveMaximum": True},
        {"exclusiveMaximum": 6},
    ),
    "titles": ({**STRING, "title": "a"}, {**STRING, "description": "b"}),
    "a dependency gone": ({**has(), "dependencies": {"a": ["b"]}}, has()),
    "bytes of Kafka Connect": (
        {**STRING, "connect.type": "bytes"},
        {**NUMBER, "connect.type": "bytes"},
    ),
}
NOT_FINE = {
    "another type": (STRING, NUMBER, "TYPE_CHANGED"),
    "number to integer": (NUMBER, INTEGER, "TYPE_NARROWED"),
    "from anything": ({}, STRING, "TYPE_CHANGED"),
    "narrower": (NUMBER, {**NUMBER, "minimum": 1}, "MINIMUM_ADDED"),
    "shorter": ({**STRING, "maxLength": 3}, {**STRING, "maxLength": 2}, "MAX_LENGTH_DECREASED"),
    "another pattern": ({**STRING, "pattern": "a"}, {**STRING, "pattern": "b"}, "PATTERN_CHANGED"),
    "a pattern": (STRING, {**STRING, "pattern": "b"}, "PATTERN_ADDED"),
    "a larger multiple": ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}, "MULTIPLE_OF_EXPANDED"),
    "optional to an open one": (has(), has(a=STRING), "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    "required to a closed one": (
        has(more=CLOSED),
        has("a", a=STRING, more=CLOSED),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    ),
    "a property gone from a closed one": (
        has(a=STRING, more=CLOSED),
        has(more=CLOSED),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    "a property that others do not cover": (
        has(more={"additionalProperties": STRING}),
        has(a=NUMBER, more={"additionalProperties": STRING}),
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    "required now": (has(a=STRING), has("a", a=STRING), "REQUIRED_ATTRIBUTE_ADDED"),
    "closed now": (has(), has(more=CLOSED), "ADDITIONAL_PROPERTIES_REMOVED"),
    "an enum with less": ({"enum": [1, 2]}, {"enum": [1]}, "ENUM_ARRAY_NARROWED"),
    "another constant": ({"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED"),
    "a sum with less": ({"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING]}, "SUM_TYPE_NARROWED"),
    "a product with more": (
        {"allOf": [STRING]},
        {"allOf": [STRING, {**STRING, "maxLength": 3}]},
        "PRODUCT_TYPE_EXTENDED",
    ),
    "other branches": (
        {"oneOf": [STRING, NUMBER]},
        {"oneOf": [STRING, {"type": "boolean"}]},
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    "another criterion": (
        {"anyOf": [STRING, NUMBER]},
        {"allOf": [STRING, NUMBER]},
        "COMBINED_TYPE_CHANGED",
    ),
    "not: wider": ({"not": INTEGER}, {"not": NUMBER}, "NOT_TYPE_EXTENDED"),
    "fewer items": (
        {"items": [STRING, NUMBER], "additionalItems": False},
        {"items": [STRING], "additionalItems": False},
        "TYPE_CHANGED",
    ),
    "unique items": ({"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_ADDED"),
    "a dependency": (has(), {**has(), "dependencies": {"a": ["b"]}}, "DEPENDENCY_ARRAY_ADDED"),
}


@pytest.mark.parametrize(("old", "new"), FINE.values(), ids=FINE)
def test_what_may_follow(old: Any, new: Any) -> None:
    assert kinds(old, new) == set()


@pytest.mark.parametrize(("old", "new", "kind"), NOT_FINE.values(), ids=NOT_FINE)
def test_what_may_not(old: Any, new: Any, kind: str) -> None:
    assert kind in kinds(old, new)


def test_the_lenient_take_open_objects_at_their_word() -> None:
    assert kinds(has(), has(a=STRING), lenient=True) == set()
    assert kinds(has(), has(more=CLOSED), lenient=True) == set()
    assert kinds(has(), has("a", a=STRING), lenient=True) != set()


def test_the_place_is_told() -> None:
    old, new = has(a={"type": "array", "items": STRING}), has(a={"type": "array", "items": NUMBER})
    (found,) = json_comparison.differences(parsed(new), parsed(old), lenient=False)
    assert found.path == "/properties/a/items"
    assert "string" in found.told("new", "old")


TREE = {"definitions": {"t": has(left={"$ref": "#/definitions/t"}, v=STRING)}, "$ref": "#/definitions/t"}


def test_schemas_that_refer_to_themselves() -> None:
    other = json.loads(json.dumps(TREE).replace("string", "number"))
    assert kinds(TREE, TREE) == set()
    assert kinds(TREE, other) == {"TYPE_CHANGED"}


def test_a_verdict_that_rested_on_what_turned_out_wrong() -> None:
    """Through `b` it is seen first, while `a` is still open."""

    def pair(kind: Any) -> Any:
        a = has(b={"$ref": "#/definitions/b"}, v=kind)
        b = has(a={"anyOf": [{"$ref": "#/definitions/a"}]})
        return {
            "definitions": {"a": a, "b": b},
            "allOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/b"}],
        }

    assert kinds(pair(STRING), pair(NUMBER)) != set()


def test_references_to_others() -> None:
    order = has(item={"$ref": "item.json"})
    old, new = parsed(order, **{"item.json": STRING}), parsed(order, **{"item.json": NUMBER})
    assert json_comparison.differences(old, old, lenient=False) == []
    assert json_comparison.differences(new, old, lenient=False)
    by_id = parsed(has(item={"$ref": "http://example.com/item"}), i={"$id": "http://example.com/item"})
    assert json_comparison.differences(by_id, by_id, lenient=False) == []


DEEP: Any = STRING
for _ in range(100):
    DEEP = {"not": DEEP}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        '"string"',
        "[]",
        '{"type": "nothing"}',
        '{"properties": 7}',
        '{"$ref": "#/definitions/none"}',
        '{"$ref": "other.json"}',
        '{"$ref": "http://example.com/other.json"}',
        '{"$schema": "http://json-schema.org/draft-03/schema#"}',
        '{"$schema": 7}',
        '{"$schema": ["a"]}',
        '{"minimum": "1"}',
        '{"$id": 7}',
        json.dumps(DEEP),
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        json_schema.parse(text, {})


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"$ref": "#"}, "circle"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "circle"),
        ({"properties": {"a": {"items": {"$ref": "#/properties/a/items"}}}}, "circle"),
        ({"title": "t", "properties": {"a": {"$ref": "#/title"}}}, "neither an object nor a boolean"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "nothing at '#/nowhere'"),
    ],
)
def test_references_that_lead_to_no_schema(schema: Any, complaint: str) -> None:
    """Refused when they come: nothing could follow them."""
    with pytest.raises(InvalidSchema, match=complaint):
        parsed(schema)


def test_references_that_lead_back_through_something() -> None:
    tree = parsed({"type": "object", "properties": {"next": {"$ref": "#"}}})
    assert json_comparison.differences(tree, tree, lenient=False) == []


def test_work_has_an_end() -> None:
    names = [f"n{n}" for n in range(40)]
    each = {
        name: {"oneOf": [{"not": {"$ref": f"#/definitions/{other}"}} for other in names]} for name in names
    }
    wide = parsed({"definitions": each, "$ref": "#/definitions/n0"})
    chain = {f"n{n}": has(next={"$ref": f"#/definitions/n{n + 1}"}) for n in range(1000)}
    long = parsed({"definitions": {**chain, "n1000": STRING}, "$ref": "#/definitions/n0"})
    for one in (wide, long):
        with pytest.raises(InvalidSchema, match="intricate"):
            json_comparison.differences(one, one, lenient=False)


def test_patterns_that_are_meant_to_hurt_are_not_tried() -> None:
    bomb = has(more={**CLOSED, "patternProperties": {"^(a+)+$": STRING}})
    assert kinds(has(**{"a" * 60 + "!": STRING}, more=CLOSED), bomb) != set()


@pytest.mark.parametrize(
    "hidden", [{"type": 5}, {"type": "string", "maxLength": "x"}, {"properties": 5}, {"enum": 5}]
)
def test_references_to_what_no_draft_looks_at(hidden: Any) -> None:
    odd = {"$ref": "#/hidden", "hidden": hidden}
    asks = {"allOf": [{"type": "string", "maxLength": 3}, {"enum": ["a"]}, has(a=STRING)]}
    for old in (odd, asks, {"type": "string", "maxLength": 3}, {"enum": ["a"]}, has(a=STRING)):
        with suppress(InvalidSchema):
            kinds(old, odd)


def test_values_are_the_same_by_what_they_are() -> None:
    assert kinds({"enum": [1, {"a": [2.0]}]}, {"enum": [{"a": [2]}, 1.0, 1 << 70, 1e300]}) == set()
    assert kinds({"enum": [1]}, {"enum": [True]}) == {"ENUM_ARRAY_CHANGED"}
    assert kinds({"const": 1}, {"const": 1.0}) == set()


def test_many_of_a_kind_cost_their_number() -> None:
    """Each against each would be a hundred million."""
    names = [f"n{n}" for n in range(10_000)]
    assert kinds({"enum": names}, {"enum": names[::-1]}) == set()
    patterns = {f"^{name}$": STRING for name in names[:1000]}
    many = {name.upper(): STRING for name in names[:1000]}
    with pytest.raises(InvalidSchema, match="intricate"):
        kinds(has(**many, more=CLOSED), has(more={**CLOSED, "patternProperties": patterns}))
