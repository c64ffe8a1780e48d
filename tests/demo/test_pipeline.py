"""How the demo's pipeline stands, from the status that a run keeps, and how it is brought to an end."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.pipelines import status
from demo.pipeline import Pipeline

EARLY, LATE = "2026-03-02T09:00:00.000+00:00", "2026-03-02T09:01:00.000+00:00"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = Pipeline(tmp_path, "127.0.0.1:1", cores=1)
    made._process = SimpleNamespace(poll=lambda: None)  # type: ignore[assignment]
    return made


def update(began: str, state: str, rows: int, flow_began: str | None) -> dict[str, Any]:
    flow = {"state": state, "rows_in": rows, "rows_out": rows, "behind": 0, "batch_ms": 1500}
    return {"started": began, "state": state, "flows": {"orders_clean": {**flow, "begun_at": flow_began}}}


def sees(monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, found: dict[str, Any] | None) -> None:
    monkeypatch.setattr(status, "read", lambda project: found)
    pipeline.look()


def test_rows_of_all_updates_are_summed_and_none_counted_twice(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline
) -> None:
    sees(monkeypatch, pipeline, None)
    assert not pipeline.has_begun
    sees(monkeypatch, pipeline, update(EARLY, "done", 5, EARLY))
    sees(monkeypatch, pipeline, update(LATE, "running", 5, EARLY))  # what the update before said
    assert [flow.rows_in for flow in pipeline.flows()] == [5]
    sees(monkeypatch, pipeline, update(LATE, "running", 2, LATE))
    (flow,) = pipeline.flows()
    assert (flow.rows_in, flow.rows_out, flow.behind, flow.batch_seconds) == (7, 7, 0, 1.5)
    assert pipeline.words == "update 2, running"


def test_only_an_update_that_began_afterwards_has_seen_all(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline
) -> None:
    closed = datetime(2026, 3, 2, 9, 0, 30, tzinfo=UTC)
    sees(monkeypatch, pipeline, update(EARLY, "done", 5, EARLY))
    assert not pipeline.has_seen_all_before(closed)
    sees(monkeypatch, pipeline, update(LATE, "running", 5, LATE))
    assert not pipeline.has_seen_all_before(closed)
    sees(monkeypatch, pipeline, update(LATE, "done", 5, LATE))
    assert pipeline.has_seen_all_before(closed)


@pytest.mark.parametrize(("state", "runs"), [("done", 0), ("stopped", 1), ("interrupted", 1)])
def test_one_more_update_if_it_was_stopped_amid_one(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, state: str, runs: int
) -> None:
    sees(monkeypatch, pipeline, update(EARLY, state, 5, EARLY))
    begun: list[tuple[str, ...]] = []

    def run(*words: str) -> Any:
        begun.append(words)
        return SimpleNamespace(wait=lambda timeout: 0)

    monkeypatch.setattr(pipeline, "_run", run)
    pipeline.settle()
    assert begun == [()] * runs


def test_a_pipeline_that_has_ended_is_told_with_its_last_words(pipeline: Pipeline) -> None:
    pipeline._said.write_text("orders_clean failed: out of luck\n")
    pipeline._process = SimpleNamespace(poll=lambda: 1, returncode=1)  # type: ignore[assignment]
    with pytest.raises(SystemExit, match="exit code 1:\norders_clean failed: out of luck"):
        pipeline.look()
