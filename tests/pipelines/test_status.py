"""The status file: what a run leaves, also when it is killed."""

from pathlib import Path

import pytest

from anabranch.base.errors import Corrupt
from anabranch.client.destinations import TopicPartition
from anabranch.pipelines import status
from anabranch.pipelines.flows import DONE, Flows
from anabranch.pipelines.project import Project, create
from anabranch.pipelines.topics import _behind


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return create(tmp_path / "shop", example=False)


def ran(project: Project, flow: str, *, over: bool = True, offset: int | None = None) -> None:
    flows = Flows()
    flows.event(f"Flow {flow} is RUNNING.", 100.0)
    if offset is not None:
        flows.flow(flow).offsets = {"orders": {"0": offset}}
    if over:
        flows.event(f"Flow {flow} has COMPLETED.", 101.0)
        flows.event("Run is COMPLETED.", 102.0)
    status.Status(project, "here:1", 99.0).write(flows, 103.0, over=over)


def test_no_run_no_status(project: Project) -> None:
    assert status.read(project) is None


def test_a_run_is_noted(project: Project) -> None:
    ran(project, "orders", offset=7)
    found = status.read(project)
    assert found is not None
    assert (found["state"], found["started"], found["ended"]) == (
        DONE,
        "1970-01-01T00:01:39.000+00:00",
        "1970-01-01T00:01:43.000+00:00",
    )
    assert found["flows"]["orders"]["begun_at"] == "1970-01-01T00:01:40.000+00:00"
    assert status.offsets_read(found) == {"orders": {"orders": {"0": 7}}}


@pytest.mark.parametrize("text", ["", '{"state": "do', "[]", '{"state": "done"}', "\x00" * 9])
def test_a_status_that_is_damaged_is_said_to_be_and_replaced(project: Project, text: str) -> None:
    ran(project, "orders")
    (project.notes / "status.json").write_text(text)
    with pytest.raises(Corrupt, match=r"status\.json is damaged"):
        status.read(project)
    ran(project, "orders")
    assert status.read(project) is not None


def test_what_a_run_says_nothing_of_is_kept(project: Project) -> None:
    ran(project, "orders", offset=7)
    ran(project, "clicks")
    ran(project, "orders")
    found = status.read(project)
    assert found is not None
    assert set(found["flows"]) == {"orders", "clicks"}
    assert found["flows"]["orders"]["offsets"] == {"orders": {"0": 7}}


def test_a_run_whose_process_is_gone_was_interrupted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(project, "orders", over=False)
    found = status.read(project)
    assert found is not None
    assert found["state"] == "running"

    def gone(process: int, signal: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr("os.kill", gone)
    found = status.read(project)
    assert found is not None
    assert found["state"] == found["flows"]["orders"]["state"] == status.INTERRUPTED


def test_lag_is_what_is_there_less_what_was_read() -> None:
    ends = {TopicPartition("a", 0): 10, TopicPartition("a", 1): 5, TopicPartition("b", 0): 99}
    assert _behind({"a": {"0": 7}}, ends, {"a", "b"}) == 8
    assert _behind({"a": {"0": 12, "1": 5}}, ends, {"a", "b"}) == 0
    assert _behind({"gone": {"0": 1}}, ends, {"a", "b"}) is None
