"""Nondeterminism: conditions and columns that depend on time or chance, which expectations may not.

Rows that pass and rows that do not are found by two queries at two times.  Where a condition depends on the
moment, a row could be in both or in neither.

    at < now()                                                      the condition itself
    withColumn("age", now() - at)      age < interval 1 hour        or a column that it looks at

A column that no condition looks at, such as the time when a row was stored, may be made of anything.
But rows must not displace each other (`dropDuplicates`, `limit`): of two, one query might keep the bad one,
which it then leaves out, and the other query the good one.
SQL text is only looked through for names: in doubt a column counts as unsteady.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from anabranch.base.errors import Invalid

# With brackets, where it could be a column.
_UNSTEADY = re.compile(
    r"\b(?:current_timestamp|current_date|current_time|localtimestamp)\b"
    r"|\b(?:now|curdate|rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id"
    r"|spark_partition_id|input_file_name|reflect|try_reflect|java_method)\s*\("
    r"|\bunix_timestamp\s*\(\s*\)",
    re.IGNORECASE,
)
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/|(`[^`]*`)", re.S)
_QUOTED = re.compile(r"`[^`]*`")
_CHOICES = {"Deduplicate": "drops duplicates", "Limit": "has a limit"}
_ALIAS = re.compile(r"\bas\s+`?(\w+)`?\s*$", re.IGNORECASE)


def unsteady(sql: str) -> str | None:
    """What in an expression is another one each time; None if nothing is."""
    found = _UNSTEADY.search(_QUOTED.sub("", _without_texts(sql)))
    return found[0].rstrip("( )") if found else None


def _without_texts(sql: str) -> str:
    return _TEXT.sub(lambda found: found[1] or "''", sql)


def unsteady_columns(query: Any) -> dict[str, str]:
    """The columns that a query, a message of Spark Connect's, makes of such things, and of what."""
    made: list[tuple[str, Any]] = []
    for message in _messages(query):
        kind = message.DESCRIPTOR.name
        if kind == "Alias":
            made += [(name.lower(), message.expr) for name in message.name]
        elif kind == "ExpressionString" and (alias := _ALIAS.search(message.expression)):
            made.append((alias[1].lower(), message))
    found: dict[str, str] = {}
    while True:  # until none is made of one that was found
        before = len(found)
        for name, expression in made:
            if name not in found and (cause := _cause(expression, found)):
                found[name] = cause
        if len(found) == before:
            return found


def _cause(expression: Any, columns: Mapping[str, str]) -> str | None:
    for message in _messages(expression):
        match message.DESCRIPTOR.name:
            case "UnresolvedFunction" | "CallFunction":
                cause = unsteady(f"{message.function_name}({'_' if message.arguments else ''})")
            case "CommonInlineUserDefinedFunction":
                cause = None if message.deterministic else message.function_name
            case "UnresolvedAttribute":
                cause = _mentioned(message.unparsed_identifier, columns)
            case "ExpressionString":
                cause = unsteady(message.expression) or _mentioned(message.expression, columns)
            case _:
                cause = None
        if cause:
            return cause
    return None


def _mentioned(sql: str, columns: Mapping[str, str]) -> str | None:
    words = re.findall(r"\w+", _without_texts(sql).lower())
    return next((columns[word] for word in words if word in columns), None)


def _messages(message: Any) -> Iterator[Any]:
    """It, and all that is in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if isinstance(value, Iterable) else (value,):
            yield from _messages(inner)


def check_conditions(conditions: Mapping[str, str], query: Any) -> None:
    """Invalid if `query` may have other rows each time, or a condition, by name, looks at such a column."""
    chosen = (_CHOICES[kind] for one in _messages(query) if (kind := one.DESCRIPTOR.name) in _CHOICES)
    if conditions and (why := next(chosen, None)):
        raise Invalid(
            f"a table with expectations {why}: a row that makes way for another one could be in neither the "
            "table nor the dead letters. Do that in a table that reads this one"
        )
    columns = unsteady_columns(query)
    for name, condition in conditions.items():
        if cause := _mentioned(condition, columns):
            raise Invalid(
                f"the expectation {name!r} looks at a column that is made of {cause}, which is another one "
                "each time: a row could be in the table and a dead letter, or neither"
            )
