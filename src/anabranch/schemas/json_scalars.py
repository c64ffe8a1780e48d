"""Values, strings and numbers of JSON Schemas against each other: limits may go or widen, never narrow."""

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any

from anabranch.schemas.difference import Difference
from anabranch.schemas.json_schema import Node


def limit(before: Any, after: Any, name: str, keyword: str, *, is_upper: bool) -> list[Difference]:
    """What a limit that came, or became stricter, amounts to."""
    if after is None or before == after:
        return []
    place = f"/{keyword}"
    if before is None:
        return [
            Difference(f"{name}_ADDED", place, f"the {{reader}} schema has {keyword}, the {{writer}} has not")
        ]
    if is_upper and after < before:
        return [Difference(f"{name}_DECREASED", place, f"{keyword} is less in the {{reader}} schema")]
    if not is_upper and after > before:
        return [Difference(f"{name}_INCREASED", place, f"{keyword} is more in the {{reader}} schema")]
    return []


def strings(before: Any, after: Any) -> list[Difference]:
    found = limit(before.get("maxLength"), after.get("maxLength"), "MAX_LENGTH", "maxLength", is_upper=True)
    found += limit(before.get("minLength"), after.get("minLength"), "MIN_LENGTH", "minLength", is_upper=False)
    old, new = before.get("pattern"), after.get("pattern")
    if new is not None and old is None:
        found.append(Difference("PATTERN_ADDED", "/pattern", "the {reader} schema has a pattern"))
    elif new is not None and old != new:
        found.append(Difference("PATTERN_CHANGED", "/pattern", "the patterns differ"))
    return found


def form(value: Any) -> str:
    """The same for values that are the same to JSON Schema: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    return value


def enumerations(before: list[Any], after: list[Any]) -> list[Difference]:
    old, new = set(map(form, before)), set(map(form, after))
    if old <= new:
        return []
    name = "ENUM_ARRAY_NARROWED" if new <= old else "ENUM_ARRAY_CHANGED"
    return [Difference(name, "/enum", "the {reader} schema lacks values of the {writer} one's enum")]


def numbers(old: Node, new: Node) -> list[Difference]:
    before, after = _limits(old.told), _limits(new.told)
    found = limit(before["maximum"], after["maximum"], "MAXIMUM", "maximum", is_upper=True)
    found += limit(before["minimum"], after["minimum"], "MINIMUM", "minimum", is_upper=False)
    for name, keyword, is_upper in (
        ("EXCLUSIVE_MAXIMUM", "exclusiveMaximum", True),
        ("EXCLUSIVE_MINIMUM", "exclusiveMinimum", False),
    ):
        found += limit(before[keyword], after[keyword], name, keyword, is_upper=is_upper)
    found += _multiples(old.told.get("multipleOf"), new.told.get("multipleOf"))
    if old.kind == "number" and new.kind == "integer":
        found.append(Difference("TYPE_NARROWED", "", "the {writer} schema has number, the {reader} integer"))
    return found


def _limits(told: Any) -> dict[str, Any]:
    """Both kinds of limits as numbers: in draft 4 `exclusiveMaximum` says of what kind `maximum` is."""
    limits = {}
    for keyword, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
        value, strictly = told.get(keyword), told.get(exclusive)
        is_flag = isinstance(strictly, bool)
        limits[keyword] = None if is_flag and strictly else value
        limits[exclusive] = (value if strictly else None) if is_flag else strictly
    return limits


def _multiples(before: Any, after: Any) -> list[Difference]:
    if after is None or before == after or (before is not None and _divides(after, before)):
        return []
    name = "MULTIPLE_OF_ADDED" if before is None else "MULTIPLE_OF_CHANGED"
    if before is not None and _divides(before, after):
        name = "MULTIPLE_OF_EXPANDED"
    told = "not every multiple of the {writer} schema's number is one of the {reader} schema's"
    return [Difference(name, "/multipleOf", told)]


def _divides(divisor: Any, number: Any) -> bool:
    """As decimals, or 0.3 would be no multiple of 0.1."""
    if not (math.isfinite(divisor) and math.isfinite(number)):
        return False
    try:
        return bool(Decimal(str(number)) % Decimal(str(divisor)) == 0)
    except InvalidOperation:
        return False
