"""The SQL that expectations become."""

import pytest

from anabranch.base.errors import Invalid
from anabranch.pipelines import context
from anabranch.pipelines.definitions import expect, table
from anabranch.pipelines.expectations import (
    JSON,
    PROBLEM,
    RAW,
    REGISTRY,
    Expectation,
    checked,
    dead_letter_columns,
    json_column,
    literal,
    passes,
    reasons,
    record_column,
)

POSITIVE = Expectation("amount is positive", "amount > 0")
KNOWN = Expectation("it's known", "currency in ('EUR')")


def test_a_row_passes_if_every_condition_is_true() -> None:
    assert passes([POSITIVE, KNOWN]) == (
        "coalesce((\namount > 0\n), false) and coalesce((\ncurrency in ('EUR')\n), false)"
    )
    assert passes([]) == "true"


def test_the_reasons_are_the_names_of_what_fails() -> None:
    text = reasons([POSITIVE, KNOWN])
    assert text.startswith("concat_ws('; ', case when coalesce((\namount > 0\n), false) then null ")
    assert "else 'amount is positive' end" in text
    assert r"else 'it\'s known' end" in text
    assert reasons([]) == "''"


def test_a_dead_letter_is_the_record_as_it_came() -> None:
    key, value, headers = dead_letter_columns("orders", PROBLEM, from_record=True)
    assert (key, value) == ("_record.key as key", "_record.value as value")
    assert headers.startswith("concat(coalesce(_record.headers, array()), array(")
    for name in ("reason", "table", "topic", "partition", "offset"):
        assert f"'dead-letter.{name}'" in headers


def test_a_row_that_is_no_record_is_its_own_dead_letter() -> None:
    _, value, headers = dead_letter_columns("orders", reasons([POSITIVE]), from_record=False)
    assert value == "to_json(struct(*)) as value"
    assert "dead-letter.offset" not in headers


def test_text_in_sql_cannot_end_itself() -> None:
    assert literal("a'b\\") == "'a\\'b\\\\'"


def test_json_is_strict_unless_there_is_a_place_for_what_is_not() -> None:
    assert "FAILFAST" in json_column("a int", strict=True)
    assert "'a int, _corrupt string'" in json_column("a int", strict=False)
    assert "_json._corrupt" in record_column(JSON)
    assert "_corrupt_reason" in record_column(REGISTRY)
    assert "_corrupt" not in record_column(RAW)


def test_a_value_is_one_document_whoever_reads_it() -> None:
    """What that does is in test_values.py; `from_json` alone takes the first of several."""
    for sql in (json_column("a int", strict=True), record_column(JSON)):
        assert "json_array_length(concat('[', cast(value as string), ']')) = 1" in sql
        assert "is_valid_utf8" in sql


@pytest.mark.parametrize(
    ("expectations", "why"),
    [
        ([Expectation(" ", "a")], "has no name"),
        ([Expectation("a", "")], "has no condition"),
        ([POSITIVE, Expectation("amount is positive", "b")], "two expectations"),
        ([Expectation("is past", "at < now()")], "uses now, which is another one each time"),
        ([Expectation("is past", "at < CURRENT_TIMESTAMP")], "uses CURRENT_TIMESTAMP"),
        ([Expectation("is lucky", "rand( ) > 0.5")], "uses rand"),
    ],
)
def test_expectations_must_make_sense(expectations: list[Expectation], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        checked(expectations)


@pytest.mark.parametrize("condition", ["uuid is not null", "note <> 'now()'", "`rand()` > 0", "nowhere(a)"])
def test_what_only_looks_like_the_time(condition: str) -> None:
    checked([Expectation("fine", condition)])


def test_expectations_cannot_be_overlooked() -> None:
    @expect("first", "a")
    @expect("second", "b")
    def orders() -> None: ...

    assert [one.name for one in orders.expectations] == ["first", "second"]  # type: ignore[attr-defined]
    with pytest.raises(Invalid, match="orders has expectations"):
        orders()


def test_a_table_is_defined_in_a_pipeline_only() -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        table(name="orders")(lambda: None)  # type: ignore[arg-type, return-value]


def test_topics_are_listed_once() -> None:
    with context.reading_definitions("here:1") as found:
        context.uses("orders", context.SOURCE)
        context.uses("orders", context.SOURCE)
        context.uses("orders", context.SINK)
        assert context.bootstrap(None) == "here:1"
    assert [use.role for use in found.uses] == [context.SOURCE, context.SINK]
