"""Changes of configuration as pure functions: overrides in, overrides out.

    altered({"cleanup.policy": "delete"}, [Change("cleanup.policy", Op.APPEND, "compact")], TOPIC_OPTIONS)
        -> {"cleanup.policy": "delete,compact"}

Nothing here says whether the result is legal: the resource checks that, for all of it together.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from anabranch.base.config import Kind, Option
from anabranch.base.errors import Invalid, InvalidConfig


class Op(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    op: Op
    value: str
    """Empty for DELETE."""


def checked_changes(wanted: Sequence[tuple[str, int, str | None]]) -> list[Change]:
    """The changes a request asks for.  Invalid if it names an option twice, a null or no known operation."""
    names = [name for name, _, _ in wanted]
    if len(set(names)) < len(names):
        raise Invalid("Error due to duplicate config keys")
    nulls = [name for name, op, value in wanted if value is None and op != Op.DELETE]
    if nulls:
        raise Invalid(f"Null value not supported for : {', '.join(nulls)}")
    for _, op, _ in wanted:
        if op not in Op.__members__.values():
            raise Invalid(f"Unknown operations type {op}")
    return [Change(name, Op(op), value or "") for name, op, value in wanted]


def altered(
    current: Mapping[str, str], changes: Sequence[Change], options: Mapping[str, Option]
) -> dict[str, str]:
    """`current` after the changes.  InvalidConfig if something is added to what is no list."""
    result = dict(current)
    for name, op, value in changes:
        match op:
            case Op.SET:
                result[name] = value
            case Op.DELETE:
                result.pop(name, None)
            case Op.APPEND | Op.SUBTRACT:
                result[name] = _with_items(result.get(name), name, op, value.split(","), options.get(name))
    return result


def _with_items(text: str | None, name: str, op: Op, items: Sequence[str], declared: Option | None) -> str:
    if declared is None or declared.kind is not Kind.LIST:
        raise InvalidConfig(f"Can't {op.name} to key {name} because its type is not LIST.")
    if text is None:
        text = declared.dump(declared.default) or ""
    old = [item for item in text.split(",") if item]
    if op is Op.APPEND:
        return ",".join(dict.fromkeys((*old, *items)))
    return ",".join(item for item in old if item not in items)
