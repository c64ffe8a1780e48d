"""JSON Schema compatibility: whether what is valid by one schema is valid by another, change by change.

The kinds of changes, and which of them are let pass, are those of the registry that Kafka's users know.
A new schema may ask for less, never for more:

    integer -> number           yes       minimum 1 -> 0          yes       an enum with more       yes
    number -> integer           no        minimum 0 -> 1          no        an enum with less       no
    oneOf with more branches    yes       allOf with more         no        not: narrower           yes

Objects and arrays have rules of their own (`json_members.py`).

Schemas may refer to themselves and each other at will.  A pair of nodes is compared once; one that is being
compared is taken to be fine.  Since a verdict may rest on that, the comparison is repeated with the pairs
that turned out not to be fine, until nothing new turns out.  Steps and depth are counted.
"""

from typing import NamedTuple

from anabranch.schemas import json_members
from anabranch.schemas.difference import MAX_DIFFERENCES, Difference
from anabranch.schemas.errors import InvalidSchema
from anabranch.schemas.json_combined import pairs_off
from anabranch.schemas.json_scalars import enumerations, form, numbers, strings
from anabranch.schemas.json_schema import (
    ALL_OF,
    ANY,
    ANY_OF,
    COMBINED,
    GARBAGE,
    NEVER,
    NUMBERS,
    ONE_OF,
    Node,
    Parsed,
    node,
)

MAX_STEPS = 20_000
MAX_LEVELS = 120

_Key = tuple[str, int, str, int]
_FINE: list[Difference] = []


def differences(new: Parsed, old: Parsed, *, lenient: bool) -> list[Difference]:
    """Why what is valid by `old` may not be by `new`; `lenient` as to what open objects might have held."""
    bad: frozenset[_Key] = frozenset()
    steps = 0
    while True:
        comparison = Comparison(lenient, bad, steps)
        try:
            found = comparison.of(node(old.root, old.resolver), node(new.root, new.resolver))
        except GARBAGE as error:  # a reference leads to what is no schema, which no draft looks at
            raise InvalidSchema(f"a reference leads to something that is no schema: {error}") from error
        steps = comparison.steps
        if not comparison.assumed or comparison.bad <= bad:
            return found[:MAX_DIFFERENCES]
        bad |= comparison.bad


class _Kept(NamedTuple):
    found: list[Difference]
    old: Node  # kept, for what its key is made of must not be used again
    new: Node


class Comparison:
    """One pass over two schemas."""

    def __init__(self, lenient: bool, bad: frozenset[_Key], steps: int) -> None:
        self.lenient = lenient
        self.steps = steps
        self.assumed = False
        self._bad_before = bad
        self._kept: dict[_Key, _Kept] = {}
        self._open: set[_Key] = set()

    @property
    def bad(self) -> frozenset[_Key]:
        return frozenset(key for key, kept in self._kept.items() if kept.found)

    def of(self, old: Node, new: Node, path: str = "") -> list[Difference]:
        """What of `new` refuses what is valid by `old`, with the places below `path`."""
        key = (old.kind, id(old.told), new.kind, id(new.told))
        kept = self._kept.get(key)
        if kept is None:
            if key in self._open:
                if key in self._bad_before:
                    return [Difference("TYPE_CHANGED", path, "the {reader} schema differs further inside")]
                self.assumed = True
                return _FINE
            self.step()
            self._open.add(key)
            kept = self._kept[key] = _Kept(self._compare(old, new)[:MAX_DIFFERENCES], old, new)
            self._open.discard(key)
        return [difference.below(path) for difference in kept.found]

    def step(self) -> None:
        """InvalidSchema if it has been too many."""
        self.steps += 1
        if self.steps > MAX_STEPS or len(self._open) > MAX_LEVELS:
            raise InvalidSchema("the schemas are too intricate to be compared")

    def _compare(self, old: Node, new: Node) -> list[Difference]:
        if new.kind in COMBINED and old.kind not in COMBINED:
            branches = new.branches()
            if (len(branches) == 1 or new.kind in (ANY_OF, ONE_OF)) and any(
                not self.of(old, branch) for branch in branches
            ):
                return _FINE
        elif old.kind in COMBINED and new.kind not in COMBINED:
            branches = old.branches()
            if (len(branches) == 1 or old.kind == ALL_OF) and any(
                not self.of(branch, new) for branch in branches
            ):
                return _FINE
        if old.kind == NEVER or new.kind == ANY or _are_bytes(old, new):
            return _FINE
        if old.kind in NUMBERS and new.kind in NUMBERS:
            return numbers(old, new)
        if old.kind in COMBINED and new.kind in COMBINED:
            return pairs_off(self, old, new)
        if old.kind != new.kind:
            told = f"the {{writer}} schema has {_shown(old)} where the {{reader}} schema has {_shown(new)}"
            return [Difference("TYPE_CHANGED", "", told)]
        return self._same_kind(old, new)

    def _same_kind(self, old: Node, new: Node) -> list[Difference]:
        kind, before, after = old.kind, old.told, new.told
        if kind == "string":
            return strings(before, after)
        if kind == "object":
            return json_members.objects(self, old, new)
        if kind == "array":
            return json_members.arrays(self, old, new)
        if kind == "enum":
            return enumerations(before["enum"], after["enum"])
        if kind == "const" and form(before["const"]) != form(after["const"]):
            return [Difference("ENUM_ARRAY_CHANGED", "/const", "the constant is not the same")]
        if kind == "not" and self.of(new.below(after["not"]), old.below(before["not"])):
            told = "the {reader} schema excludes what the {writer} schema does not"
            return [Difference("NOT_TYPE_EXTENDED", "/not", told)]
        return _FINE


def _are_bytes(old: Node, new: Node) -> bool:
    """Kafka Connect writes bytes by more than one type, and says so."""
    return all(
        isinstance(side.told, dict) and side.told.get("connect.type") == "bytes" for side in (old, new)
    )


def _shown(side: Node) -> str:
    return side.kind if side.kind not in COMBINED else f"a combination by {side.kind}"
