"""What is another one each time, in conditions and in queries that they look at.  No Spark: messages only."""

import os
from typing import Any

import pytest

from anabranch.base.errors import Invalid
from anabranch.pipelines.steady import check_conditions, unsteady, unsteady_columns


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(os.environ, "SPARK_CONNECT_MODE_ENABLED", "1")
    from pyspark.sql.connect import functions

    return functions


def with_columns(**columns: Any) -> Any:
    """A table with some columns more, as Spark is told of it."""
    from pyspark.sql.connect import plan

    query: Any = plan.Read("orders")
    for name, column in columns.items():
        query = plan.WithColumns(query, columnNames=[name], columns=[column])
    return query.plan(None)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("at < now()", "now"),
        ("at < CURRENT_DATE", "CURRENT_DATE"),
        ("unix_timestamp() > 7", "unix_timestamp"),
        ("unix_timestamp(at) > 7", None),
        ("a > 0 -- not now()", None),
        ("a > 0 /* nor\nrand() */", None),
        ("a > 0 -- it's\n and rand() > 0 -- isn't it", "rand"),
        ("note = 'now()' and `rand()` > 0", None),
    ],
)
def test_what_is_said_in_a_text_or_a_comment_does_not_count(sql: str, found: str | None) -> None:
    assert unsteady(sql) == found


def test_columns_of_the_time_and_columns_of_those(functions: Any) -> None:
    F = functions
    query = with_columns(
        stored=F.current_timestamp(),
        late=F.expr("stored - at > interval 1 hour"),
        very=F.col("late") & F.col("urgent"),
        lucky=F.rand() > 0.5,
        amount=F.col("amount") * 2,
    )
    found = unsteady_columns(query)
    assert found == dict.fromkeys(("stored", "late", "very"), "current_timestamp") | {"lucky": "rand"}
    with pytest.raises(Invalid, match="'in time' looks at a column that is made of current_timestamp"):
        check_conditions({"in time": "not `Late`"}, query)
    check_conditions({"positive": "amount > 0 and note <> 'stored late'"}, query)


def test_columns_in_sql(functions: Any) -> None:
    from pyspark.sql.connect import plan

    columns = [functions.expr("*"), functions.expr("now() - at AS age"), functions.expr("a as b")]
    query = plan.Project(plan.Read("orders"), columns).plan(None)  # type: ignore[arg-type]
    assert unsteady_columns(query) == {"age": "now"}


@pytest.mark.parametrize("choice", ["duplicates", "limit"])
def test_rows_that_make_way_for_each_other(choice: str) -> None:
    from pyspark.sql.connect import plan

    read: Any = plan.Read("orders")
    chosen = plan.Limit(read, 5) if choice == "limit" else plan.Deduplicate(read, column_names=["id"])
    query = plan.SubqueryAlias(chosen, "orders").plan(None)  # type: ignore[arg-type]
    check_conditions({}, query)
    with pytest.raises(Invalid, match=rf"{choice}.*in a table that reads this one"):
        check_conditions({"positive": "amount > 0"}, query)
