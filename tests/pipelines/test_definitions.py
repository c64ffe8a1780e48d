"""What becomes of definitions, told to a registry of a few lines and read from topics that are not there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import Output
from pyspark.sql import SparkSession

from anabranch.base.errors import Invalid
from anabranch.pipelines import context
from anabranch.pipelines.definitions import read_topic, table


class Registry(GraphElementRegistry):
    def __init__(self) -> None:
        self.queries: dict[str, Callable[[], Any]] = {}

    def register_output(self, output: Output) -> None: ...

    def register_flow(self, flow: Flow) -> None:
        self.queries[flow.name] = flow.func

    def register_auto_cdc_flow(self, *_: Any) -> None: ...

    def register_sql(self, sql_text: str, file_path: Any) -> None: ...


class Anything:
    """Rows, and whatever makes them."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> "Anything":
        return self


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(SparkSession, "active", lambda: Anything())
    found = Registry()
    with graph_element_registration_context(found), context.reading_definitions("here:1"):
        yield found


@pytest.mark.parametrize(
    ("read", "letters"), [("orders", "orders"), ("clicks, orders", "orders"), ("a-dead-letters", None)]
)
def test_dead_letters_do_not_come_back(registry: Registry, read: str, letters: str | None) -> None:
    table(name="a", dead_letters=letters)(lambda: read_topic(read, "n int"))
    assert sorted(registry.queries) == ["a", "a_dead_letters"]
    for query in registry.queries.values():
        with pytest.raises(Invalid, match=r"the dead letters of a go to .*which it reads"):
            query()
