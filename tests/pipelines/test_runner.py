"""One update after another: graphs are forgotten, tables are noted, whatever becomes of a run.  No Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from anabranch.pipelines import graph
from anabranch.pipelines.flows import FAILED
from anabranch.pipelines.project import Project, create
from anabranch.pipelines.runner import Runner, Selection


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return create(tmp_path / "shop", example=False)


def runner_of(project: Project, catalogue: Any = None) -> Runner:
    listening: Any = SimpleNamespace(to=lambda hear: None, last_words=lambda seconds: None)
    return Runner(None, project, "here:1", listening, catalogue)


def test_a_graph_that_has_run_is_forgotten(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    made, forgotten = iter(["first", "second"]), []
    monkeypatch.setattr(graph, "define", lambda spark, project: next(made))
    monkeypatch.setattr(graph, "forget", lambda spark, one: forgotten.append(one))
    runner = runner_of(project)
    runner.define()
    assert forgotten == []
    runner.define()
    assert forgotten == ["first"]


def saying(*messages: str, error: str = "") -> Callable[..., Iterator[dict[str, Any]]]:
    """A run that says this, and fails if there is an error."""

    def run(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        for message in messages:
            yield {"pipeline_event_result": SimpleNamespace(event=SimpleNamespace(message=message))}
        if error:
            raise PySparkException(error)

    return run


class Noting:
    """A catalogue that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def restore(self, made_anew: Any) -> None:
        self.asked.append("restore")

    def begin(self) -> None:
        self.asked.append("begin")

    def note(self) -> None:
        self.asked.append("note")


@pytest.mark.parametrize(
    "run",
    [
        saying("Run is RUNNING.", "Run is COMPLETED."),
        saying("Run is RUNNING.", error="out of luck"),
        saying(error="no such table"),
    ],
    ids=["done", "failed", "failed at once"],
)
def test_tables_are_noted_once_whatever_becomes_of_a_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    monkeypatch.setattr("pyspark.pipelines.spark_connect_pipeline.start_run", run)
    catalogue = Noting()
    runner_of(project, catalogue).update(Selection(), lambda flows: None)
    assert catalogue.asked == ["restore", "begin", "note"]


def test_a_dry_run_notes_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.pipelines.spark_connect_pipeline.start_run", saying(error="no such table"))
    catalogue = Noting()
    flows = runner_of(project, catalogue).dry_run()
    assert (flows.run_state, flows.error) == (FAILED, "no such table")
    assert catalogue.asked == []
