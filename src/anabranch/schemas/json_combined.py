"""Combinations of JSON Schemas, allOf, anyOf and oneOf, against each other.

Each branch of the side that has fewer must find one of the other side that it goes with, none twice: a
matching of the largest size, found by augmenting paths.  A sum (anyOf, oneOf) may have more branches than
before, a product (allOf) fewer.
"""

from typing import TYPE_CHECKING

from anabranch.schemas.difference import Difference
from anabranch.schemas.json_scalars import form
from anabranch.schemas.json_schema import ALL_OF, ANY_OF, ONE_OF, Node

if TYPE_CHECKING:
    from anabranch.schemas.json_comparison import Comparison


def pairs_off(comparison: "Comparison", old: Node, new: Node) -> list[Difference]:
    before, after = _distinct(old.branches()), _distinct(new.branches())
    if old.kind != new.kind and not _may_become(old.kind, len(before), new.kind, len(after)):
        told = f"{old.kind} of the {{writer}} schema is {new.kind} in the {{reader}} schema"
        return [Difference("COMBINED_TYPE_CHANGED", "", told)]
    found = []
    if len(before) < len(after) and new.kind == ALL_OF:
        told = "the {reader} schema asks for more at once than the {writer} schema"
        found.append(Difference("PRODUCT_TYPE_EXTENDED", f"/{new.kind}", told))
    elif len(before) > len(after) and old.kind in (ANY_OF, ONE_OF):
        told = "the {reader} schema allows for fewer kinds than the {writer} schema"
        found.append(Difference("SUM_TYPE_NARROWED", f"/{old.kind}", told))
    fits = [
        [place for place, branch in enumerate(after) if not comparison.of(side, branch)] for side in before
    ]
    if _matched(fits) < min(len(before), len(after)):
        told = "branches of the {writer} schema have no counterpart in the {reader} schema"
        found.append(Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", f"/{old.kind}", told))
    return found


def _distinct(branches: list[Node]) -> list[Node]:
    """What is said twice counts once."""
    return list({(branch.kind, form(branch.told)): branch for branch in reversed(branches)}.values())[::-1]


def _may_become(old: str, before: int, new: str, after: int) -> bool:
    if new == ANY_OF or (before == 1 and after == 1):
        return True
    return (before == 1 and new == ONE_OF) or (after == 1 and old == ALL_OF)


def _matched(fits: list[list[int]]) -> int:
    """The most pairs there can be, where the first side's number n goes with `fits[n]`."""
    taken: dict[int, int] = {}

    def place(one: int, tried: set[int]) -> bool:
        for other in fits[one]:
            if other in tried:
                continue
            tried.add(other)
            if other not in taken or place(taken[other], tried):
                taken[other] = one
                return True
        return False

    return sum(place(one, set()) for one in range(len(fits)))
