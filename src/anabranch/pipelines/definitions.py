"""Pipeline definitions: topics as sources and sinks, and tables with expectations.

    read_topic("orders", schema="order string, amount decimal(12,2)")    a stream of rows
    topic_view("orders", topic="orders", schema=...)                     the same by name, for SQL
    topic_sink("revenue", topic="revenue")                               a target for append flows
    @table(dead_letters="shop-dead-letters")                             a streaming table; what is not
    @expect("amount is positive", "amount > 0")                          as expected goes to that topic

All of it becomes elements of Spark's own: tables, sinks, append flows, views (`pyspark.pipelines`), which can
be mixed with these at will.

A table with expectations is two flows, one of the rows that pass and one of the others.  Each reads the topic
by itself and has its own checkpoint, and is exactly once by itself; one may be ahead of the other while they
run.  Together they have every row once, as their conditions are complements.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, overload

from anabranch.base.errors import Invalid
from anabranch.pipelines import context
from anabranch.pipelines.expectations import (
    JSON,
    PROBLEM,
    RAW,
    RECORD,
    REGISTRY,
    Expectation,
    checked,
    dead_letter_columns,
    json_column,
    passes,
    reasons,
    record_column,
)
from anabranch.pipelines.steady import check_conditions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FORMAT = "anabranch"

Query = Callable[[], "DataFrame"]


def read_topic(
    topic: str, schema: "str | StructType | None" = None, options: Mapping[str, str] | None = None
) -> "DataFrame":
    """The records of `topic` as a stream.

    With a schema, values are JSON and their fields are the columns; with "registry", the columns are those of
    the topic's registered schema; without, those of `format("anabranch")`.  In a `table` a value that cannot
    be read is a dead letter; elsewhere it stops the flow.  Reading begins at the topic's start and leaves out
    what is not committed, unless `options`, which are those of `format("anabranch")`, say otherwise.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    context.uses(topic, context.SOURCE)
    check = context.being_checked()
    given = {
        "kafka.bootstrap.servers": context.bootstrap(spark),
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    if check is not None:
        check.topics += [name.strip() for name in topic.split(",")]
        given["includeHeaders"] = "true"
    if schema == REGISTRY:
        given |= {
            "valueSchema": REGISTRY,
            "valueAs": "struct",
            "schema.registry.url": context.registry(spark),
        }
        given["mode"] = "FAILFAST" if check is None else "PERMISSIVE"
    rows = spark.readStream.format(FORMAT).options(**given | dict(options or {})).load()
    if check is None:
        return _columns(rows, schema)
    made = _columns_and_record(rows, schema)
    if schema is None:
        return made
    # Nobody's function sees what could not be read: a `where` of its own would drop it.
    check.unreadable.append(made.where(f"{PROBLEM} is not null").select(RECORD))
    return made.where(f"{PROBLEM} is null")


def _columns(rows: "DataFrame", schema: "str | StructType | None") -> "DataFrame":
    if schema is None:
        return rows
    if schema == REGISTRY:
        return rows.select("value.*")
    return rows.selectExpr(json_column(_ddl(schema), strict=True)).select("_json.*")


def _columns_and_record(rows: "DataFrame", schema: "str | StructType | None") -> "DataFrame":
    if schema is None:
        return rows.selectExpr("*", record_column(RAW))
    if schema == REGISTRY:
        return rows.selectExpr("value.*", record_column(REGISTRY))
    rows = rows.selectExpr("*", json_column(_ddl(schema), strict=False))
    return rows.selectExpr("_json.*", record_column(JSON)).drop("_corrupt")


def _ddl(schema: "str | StructType") -> str:
    if isinstance(schema, str):
        return schema
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def topic_view(
    name: str,
    topic: str | None = None,
    schema: "str | StructType | None" = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """`read_topic` as a view, for definitions in SQL: `SELECT … FROM STREAM(name)`."""
    from pyspark import pipelines as dp

    dp.temporary_view(name=name)(lambda: read_topic(topic or name, schema, options))


def topic_sink(name: str, topic: str | None = None, options: Mapping[str, str] | None = None) -> None:
    """A topic as the target of append flows, whose rows have the columns of `format("anabranch")`."""
    _sink(name, topic or name, context.SINK, options or {})


def _sink(name: str, topic: str, role: str, options: Mapping[str, str]) -> None:
    from pyspark import pipelines as dp
    from pyspark.sql import SparkSession

    context.uses(topic, role)
    servers = context.bootstrap(SparkSession.active())
    dp.create_sink(name, FORMAT, {"kafka.bootstrap.servers": servers, "topic": topic, **options})


def expect(name: str, condition: str) -> Callable[[Query], Query]:
    """Rows of the `table` above this must meet `condition`, or are dead letters with that reason."""

    def decorate(query: Query) -> Query:
        inner: Query = getattr(query, "query", query)

        @wraps(inner)
        def unchecked() -> "DataFrame":
            raise Invalid(
                f"{inner.__name__} has expectations, which only @table of anabranch.pipelines looks at"
            )

        unchecked.query = inner  # type: ignore[attr-defined]
        unchecked.expectations = [  # type: ignore[attr-defined]
            Expectation(name, condition),
            *getattr(query, "expectations", ()),
        ]
        return unchecked

    return decorate


@overload
def table(query: Query, /) -> None: ...


@overload
def table(
    *, name: str | None = None, dead_letters: str | None = None, **arguments: Any
) -> Callable[[Query], None]: ...


def table(
    query: Query | None = None,
    *,
    name: str | None = None,
    dead_letters: str | None = None,
    **arguments: Any,
) -> Callable[[Query], None] | None:
    """A streaming table of the rows that are as expected; the others go to the topic `dead_letters`.

    Without that, to the topic NAME-dead-letters.  `arguments` are those of `pyspark.pipelines.table`.
    """

    def decorate(decorated: Query) -> None:
        _define(decorated, name or decorated.__name__, dead_letters, arguments)

    if query is None:
        return decorate
    decorate(query)
    return None


def _define(decorated: Query, name: str, dead_letters: str | None, arguments: Mapping[str, Any]) -> None:
    from pyspark import pipelines as dp

    inner: Query = getattr(decorated, "query", decorated)
    expectations = checked(getattr(decorated, "expectations", ()))
    short = name.rsplit(".", 1)[-1]
    letters_to = dead_letters or f"{short}-dead-letters"

    def rows_of(check: context.Checking) -> "DataFrame":
        rows = inner()
        if letters_to in check.topics:
            raise Invalid(
                f"the dead letters of {name} go to {letters_to}, which it reads: they would come back for "
                "ever. Name another topic with dead_letters"
            )
        return _steady(rows, expectations)

    def passing() -> "DataFrame":
        with context.checking() as check:
            rows = rows_of(check)
        return rows.where(passes(expectations)).drop(RECORD)

    def failing() -> "DataFrame":
        with context.checking() as check:
            rows = rows_of(check).where(f"not ({passes(expectations)})")
        columns = dead_letter_columns(short, reasons(expectations), from_record=check.from_record)
        letters = rows.selectExpr(*columns)
        for unreadable in check.unreadable:
            letters = letters.unionByName(
                unreadable.selectExpr(*dead_letter_columns(short, PROBLEM, from_record=True))
            )
        return letters

    dp.table(name=name, **arguments)(passing)
    sink = f"{short}_dead_letters"
    _sink(sink, letters_to, context.DEAD_LETTERS, {})
    with _record_is_kept(short):
        dp.append_flow(target=sink, name=sink)(failing)


def _steady(rows: Any, expectations: Sequence[Expectation]) -> "DataFrame":
    """`rows`, if the conditions say the same of them each time."""
    made_of = rows._plan.plan(rows.sparkSession.client)
    check_conditions({one.name: one.condition for one in expectations}, made_of)
    checked_rows: DataFrame = rows
    return checked_rows


@contextmanager
def _record_is_kept(table: str) -> Iterator[None]:
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if f"`{RECORD}`" in str(error).partition("Did you mean")[0]:
            raise Invalid(
                f"the function of {table} does not keep the column {RECORD}, of which dead letters are made"
            ) from error
        raise
