"""Expectations: conditions on rows, and the dead letters of those that fail.  Pure SQL text, no Spark.

    @expect("amount is positive", "amount > 0")

A row passes if every condition is true; one that is false or null fails it.  Rows that pass go to the table,
all others to the dead-letter topic, as they came:

    key, value   of the record that the row was made from; of a row that was not made from one, itself as JSON
    headers      the record's own, then  dead-letter.reason      amount is positive; currency is known
                                         dead-letter.table       orders_clean
                                         dead-letter.topic, dead-letter.partition, dead-letter.offset

A record that is not JSON of the schema makes no row: it is a dead letter before anybody's function sees it.

The two sides are exact complements (one is `passes`, the other `not passes`), so no row can be in both or in
neither; but they are two queries, at two times.  So a condition must not depend on when it is asked.
"""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.base.errors import Invalid
from anabranch.pipelines.steady import unsteady

RECORD = "_record"
"""The column with the record that a row was made from, while expectations are looked at."""

PROBLEM = f"{RECORD}.problem"
"""Why a record could not be read; null if it could."""

NO_VALUE = "there is no value"
NOT_JSON = "value is not JSON of the schema"


RAW, JSON, REGISTRY = "raw", "json", "registry"
"""How values are read: not at all, by a schema that is given, by the one that is registered."""


class Expectation(NamedTuple):
    name: str
    condition: str


def checked(expectations: Sequence[Expectation]) -> tuple[Expectation, ...]:
    """Them, if they make sense together.  Invalid says why not."""
    names = [one.name for one in expectations]
    for one in expectations:
        if not one.name.strip():
            raise Invalid(f"the expectation {one.condition!r} has no name; dead letters are told by it")
        if not one.condition.strip():
            raise Invalid(f"the expectation {one.name!r} has no condition")
        if names.count(one.name) > 1:
            raise Invalid(f"there are two expectations of the name {one.name!r}")
        if found := unsteady(one.condition):
            raise Invalid(
                f"the expectation {one.name!r} uses {found}, which is another one each time: "
                "a row could be in the table and a dead letter, or neither"
            )
    return tuple(expectations)


def literal(text: str) -> str:
    """`text` in SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def passes(expectations: Sequence[Expectation]) -> str:
    """Whether a row is as expected, in SQL: true or false, never null."""
    return " and ".join(_is_true(one) for one in expectations) or "true"


def _is_true(one: Expectation) -> str:
    return f"coalesce((\n{one.condition}\n), false)"  # on a line of its own: it may end in a comment


def reasons(expectations: Sequence[Expectation]) -> str:
    """Why a row is not, in SQL: the names of what it fails, as one text."""
    failed = [f"case when {_is_true(one)} then null else {literal(one.name)} end" for one in expectations]
    return f"concat_ws('; ', {', '.join(failed)})" if failed else "''"


def dead_letter_columns(table: str, reason: str, *, from_record: bool) -> tuple[str, ...]:
    """What a row that failed for `reason` looks like in the dead-letter topic; all of it in SQL."""
    headers = {"reason": reason, "table": literal(table)}
    if not from_record:
        return "cast(null as binary) as key", "to_json(struct(*)) as value", f"{_headers(headers)} as headers"
    headers |= {name: f"{RECORD}.{name}" for name in ("topic", "partition", "offset")}
    own = f"coalesce({RECORD}.headers, array())"
    return (
        f"{RECORD}.key as key",
        f"{RECORD}.value as value",
        f"concat({own}, {_headers(headers)}) as headers",
    )


def _headers(values: dict[str, str]) -> str:
    structs = (
        f"named_struct('key', 'dead-letter.{name}', 'value', cast(cast({value} as string) as binary))"
        for name, value in values.items()
    )
    return f"array({', '.join(structs)})"


def record_column(how: str) -> str:
    """The record that a row is made from, in SQL, over the columns of the source (and `_json`)."""
    value, problem = _VALUE_AND_PROBLEM[how]
    return (
        f"struct(topic, partition, offset, key, {value} as value, headers, {problem} as problem) as {RECORD}"
    )


def json_column(schema: str, *, strict: bool) -> str:
    """`value` read as JSON, in SQL.  `strict`: one that cannot be read stops the query."""
    if strict:
        read = f"from_json(cast(value as string), {literal(schema)}, map('mode', 'FAILFAST'))"
        stop = f"raise_error(concat('at offset ', offset, ' of ', topic, '-', partition, ': {NOT_JSON}'))"
        return f"if(value is null or {_ONE_JSON}, {read}, {stop}) as _json"
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    return f"from_json(cast(value as string), {literal(schema + ', _corrupt string')}, {options}) as _json"


# from_json takes the first of several documents, and what is not UTF-8 for question marks: both would be
# loss that nobody sees.  As the only item of an array, one document is one.
_ONE_JSON = (
    "coalesce(is_valid_utf8(cast(value as string)) "
    "and json_array_length(concat('[', cast(value as string), ']')) = 1, false)"
)

_VALUE_AND_PROBLEM = {
    RAW: ("value", "cast(null as string)"),
    JSON: (
        "value",
        f"case when value is null then {literal(NO_VALUE)} "
        f"when _json is null or _json._corrupt is not null or not {_ONE_JSON} then {literal(NOT_JSON)} end",
    ),
    # The source has read it: bytes are there only of what it could not read.
    REGISTRY: (
        "coalesce(_corrupt_record, cast(to_json(value) as binary))",
        f"coalesce(_corrupt_reason, case when value is null then {literal(NO_VALUE)} end)",
    ),
}
