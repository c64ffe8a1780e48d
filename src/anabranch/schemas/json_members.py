"""Objects and arrays of JSON Schemas against each other: what they hold, and what else they may hold.

    open        whatever is not named is allowed          {"properties": {...}}
    partly      it is, if it is valid by a schema         {..., "additionalProperties": {"type": "string"}}
    closed      it is not                                 {..., "additionalProperties": false}

A property that comes must fit what could stand there before: anything, where the old schema was open (so that
it may only be let pass where one is lenient), what was valid by the schema of others, or nothing.  One that
goes must be allowed by what the new schema says of others.

Patterns of names are tried only where they are plain: a hostile expression would hold up everything.
"""

import re
from typing import TYPE_CHECKING, Any

from anabranch.schemas.difference import Difference
from anabranch.schemas.json_scalars import limit
from anabranch.schemas.json_schema import ANY, NEVER, Node

if TYPE_CHECKING:
    from anabranch.schemas.json_comparison import Comparison

_PLAIN = re.compile(r"\^?(?:[\w \-]|\\[.\-$])*(?:\.[*+])?\$?")


def objects(comparison: "Comparison", old: Node, new: Node) -> list[Difference]:
    before, after = old.told, new.told
    required = _required(after)
    found = _became_required(before, after, required - _required(before))
    names = sorted({*_properties(before), *_properties(after)})
    for name in names:
        found += _property(comparison, old, new, name, is_required=name in required)
    found += _dependencies(comparison, old, new)
    found += _others(comparison, old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
    found += _others(comparison, old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    for name, keyword, is_upper in (
        ("MAX_PROPERTIES", "maxProperties", True),
        ("MIN_PROPERTIES", "minProperties", False),
    ):
        found += limit(before.get(keyword), after.get(keyword), name, keyword, is_upper=is_upper)
    return found


def _properties(told: Any) -> dict[str, Any]:
    properties: dict[str, Any] = told.get("properties") or {}
    return properties


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _required(told: Any) -> set[str]:
    required = told.get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _became_required(before: Any, after: Any, required: set[str]) -> list[Difference]:
    found = []
    for name, schema in _properties(after).items():
        if name in required and name in _properties(before) and not _has_default(schema):
            told = f"{name} must be there in the {{reader}} schema, not in the {{writer}} schema"
            found.append(Difference("REQUIRED_ATTRIBUTE_ADDED", f"/required/{name}", told))
    return found


def _property(
    comparison: "Comparison", old: Node, new: Node, name: str, *, is_required: bool
) -> list[Difference]:
    place = f"/properties/{name}"
    before, after = _properties(old.told).get(name), _properties(new.told).get(name)
    if before is None:
        return [found.below(place) for found in _came(comparison, old, new, name, is_required)]
    if after is not None:
        return comparison.of(old.below(before), new.below(after), place)
    if _is_open(new.told):
        return []
    others = _schema_of_others(comparison, new, name)
    if others is not None:
        if not comparison.of(old.below(before), others):
            return []
        return [_gone("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)]
    if before is False or comparison.lenient:
        return []
    return [_gone("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", place)]


def _gone(kind: str, place: str) -> Difference:
    return Difference(kind, place, "the {reader} schema lacks it, and allows for nothing of the kind")


def _came(comparison: "Comparison", old: Node, new: Node, name: str, is_required: bool) -> list[Difference]:
    schema = _properties(new.told)[name]
    is_bare = is_required and not _has_default(schema)
    if _is_open(old.told):
        if new.below(schema).kind == ANY:
            return []
        if is_bare:
            told = "the {reader} schema asks for it; the {writer} schema lacks it and is open"
            return [Difference("REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "", told)]
        if comparison.lenient:
            return []
        told = "the {writer} schema lacks it and is open, so that there may have been anything"
        kind = "REQUIRED_PROPERTY_WITH_DEFAULT" if is_required else "OPTIONAL_PROPERTY"
        return [Difference(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL", "", told)]
    found = []
    others = _schema_of_others(comparison, old, name)
    if others is not None and not comparison.lenient and comparison.of(others, new.below(schema)):
        told = "it does not allow for all that the {writer} schema did under that name"
        found.append(Difference("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "", told))
    if is_bare:
        told = "the {reader} schema asks for it, and the {writer} schema lacks it"
        found.append(Difference("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", "", told))
    return found


def _said_of_others(told: Any) -> Any:
    """What is said of properties that are not named, by either of the keywords."""
    return told.get("additionalProperties", told.get("unevaluatedProperties", True))


def _is_open(told: Any) -> bool:
    return not told.get("patternProperties") and _said_of_others(told) in (True, {})


def _schema_of_others(comparison: "Comparison", side: Node, name: str) -> Node | None:
    """What a property that is not named must be valid by; None if there may be none."""
    for pattern, schema in (side.told.get("patternProperties") or {}).items():
        comparison.step()
        if _PLAIN.fullmatch(pattern) and re.search(pattern, name):
            return side.below(schema)
    said = _said_of_others(side.told)
    return None if isinstance(said, bool) else side.below(said)


def _others(comparison: "Comparison", old: Node, new: Node, keyword: str, name: str) -> list[Difference]:
    """What is said of whatever is not named."""
    if comparison.lenient and name.endswith("PROPERTIES"):
        return []
    before, after = (side.below(side.told.get(keyword, True)) for side in (old, new))
    place = f"/{keyword}"
    if after.kind == ANY or before.kind == NEVER:
        return []
    if after.kind == NEVER:
        told = "the {reader} schema is closed, the {writer} schema is not"
        return [Difference(f"{name}_REMOVED", place, told)]
    if before.kind == ANY:
        told = "the {reader} schema allows for less that is not named"
        return [Difference(f"{name}_NARROWED", place, told)]
    return comparison.of(before, after, place)


def _dependencies(comparison: "Comparison", old: Node, new: Node) -> list[Difference]:
    found = []
    before, after = _depended(old.told), _depended(new.told)
    for name, asked in after.items():
        place, was = f"/dependencies/{name}", before.get(name)
        if isinstance(asked, list):
            was = was if isinstance(was, list) else None
            if was is None or not set(map(str, asked)) <= set(map(str, was)):
                kind = "DEPENDENCY_ARRAY_ADDED" if was is None else "DEPENDENCY_ARRAY_EXTENDED"
                found.append(Difference(kind, place, f"the {{reader}} schema asks for more beside {name}"))
        elif was is None or isinstance(was, list):
            told = f"the {{reader}} schema asks for more beside {name}"
            found.append(Difference("DEPENDENCY_SCHEMA_ADDED", place, told))
        else:
            found += comparison.of(old.below(was), new.below(asked), place)
    return found


def _depended(told: Any) -> dict[str, Any]:
    keywords = ("dependencies", "dependentRequired", "dependentSchemas")
    return {name: asked for keyword in keywords for name, asked in (told.get(keyword) or {}).items()}


def arrays(comparison: "Comparison", old: Node, new: Node) -> list[Difference]:
    before, after = old.told, new.told
    found = _items(comparison, old, new)
    for name, keyword, is_upper in (
        ("MAX_ITEMS", "maxItems", True),
        ("MIN_ITEMS", "minItems", False),
        ("MAX_CONTAINS", "maxContains", True),
        ("MIN_CONTAINS", "minContains", False),
    ):
        found += limit(before.get(keyword), after.get(keyword), name, keyword, is_upper=is_upper)
    if after.get("uniqueItems") and not before.get("uniqueItems"):
        told = "items must differ in the {reader} schema alone"
        found.append(Difference("UNIQUE_ITEMS_ADDED", "/uniqueItems", told))
    return found


def _tuple(side: Node) -> tuple[list[Any], Any, str]:
    """The schemas of the first items, the schema of the others, and the keyword that says so."""
    told = side.told
    if isinstance(told.get("items"), list):
        return told["items"], told.get("additionalItems", True), "additionalItems"
    others = told.get("items", told.get("additionalItems", told.get("unevaluatedItems", True)))
    return told.get("prefixItems") or [], others, "items"


def _items(comparison: "Comparison", old: Node, new: Node) -> list[Difference]:
    (before, rest, _), (after, others, keyword) = _tuple(old), _tuple(new)
    found = []
    for index in range(max(len(before), len(after))):
        was = before[index] if index < len(before) else rest
        now = after[index] if index < len(after) else others
        if was is False and index >= len(before):
            continue  # there was none, so that whatever comes is fine
        found += comparison.of(old.below(was), new.below(now), f"/items/{index}")
    was, now = old.below(rest), new.below(others)
    if before or after:
        if was.kind != NEVER and now.kind == NEVER:
            told = "the {reader} schema allows for fewer items"
            return [*found, Difference("ADDITIONAL_ITEMS_REMOVED", f"/{keyword}", told)]
        if was.kind == ANY and now.kind != ANY:
            told = "the {reader} schema allows for less among the items that are not named"
            return [*found, Difference("ADDITIONAL_ITEMS_NARROWED", f"/{keyword}", told)]
    return found + comparison.of(was, now, f"/{keyword}")
