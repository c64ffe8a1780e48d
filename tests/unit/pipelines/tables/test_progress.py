from typing import Any, cast

import pytest

from anabranch.base.errors import Unavailable
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.group_offsets import Committed
from anabranch.pipelines.tables import progress as module
from anabranch.pipelines.tables.progress import Progress
from tests.unit.tables.conftest import data_file, snapshot

NOBODY = cast("Cluster", None)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []

    def commit(cluster: object, group: str, offsets: dict[TopicPartition, int], *, metadata: str) -> None:
        if metadata == "nobody listens":
            raise Unavailable(metadata)
        told.append((group, {one.partition: end for one, end in offsets.items()}, metadata))

    def committed(cluster: object, group: str) -> dict[TopicPartition, Committed]:
        return {TopicPartition("", 0): Committed(0, one[2]) for one in told if one[0] == group}

    monkeypatch.setattr(module, "commit_offsets", commit)
    monkeypatch.setattr(module, "committed_offsets", committed)
    return told


def test_what_changes_is_told(told: list[tuple[Any, ...]]) -> None:
    progress = Progress()
    progress.tell("orders", snapshot(), "", NOBODY)
    assert told == [], "there is nothing to tell"
    for problem in ("", "", "x" * 5000, "nobody listens", ""):
        progress.tell("orders", snapshot(data_file(1, 0, 7)), problem, NOBODY)
    group = "anabranch-table-orders"
    assert told == [(group, {1: 7}, ""), (group, {1: 7}, "x" * 1000), (group, {1: 7}, "")]


def test_it_is_told_again_before_groups_forget(
    told: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress()
    for now_s, times in ((10_000.0, 1), (10_100.0, 1), (14_000.0, 2)):
        monkeypatch.setattr(module.time, "monotonic", lambda now_s=now_s: now_s)
        progress.tell("orders", snapshot(data_file(1, 0, 7)), "", NOBODY)
        assert len(told) == times


def test_a_problem_of_a_table_that_has_not_begun_does_not_look_as_if_it_had(
    told: list[tuple[Any, ...]],
) -> None:
    group = "anabranch-table-problem-orders"
    Progress().tell("orders", None, "no place", NOBODY)
    assert told == [(group, {0: 0}, "no place")]
    assert module.problem_of("orders", NOBODY) == "no place"
    later = Progress()  # another process, for which all is well
    for _ in range(2):
        later.tell("orders", snapshot(data_file(1, 0, 7)), "", NOBODY)
    assert told[1:] == [("anabranch-table-orders", {1: 7}, ""), (group, {0: 0}, "")]
    assert module.problem_of("orders", NOBODY) == ""
