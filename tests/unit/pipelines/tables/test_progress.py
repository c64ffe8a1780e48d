from typing import Any, cast

import pytest

from anabranch.base.errors import Unavailable
from anabranch.pipelines.tables import progress as module
from anabranch.pipelines.tables.progress import Progress
from anabranch.spark.cluster import Cluster, TopicPartition
from tests.unit.tables.conftest import data_file, snapshot

NOBODY = cast("Cluster", None)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []

    def commit(cluster: object, group: str, offsets: dict[TopicPartition, int], *, metadata: str) -> None:
        if metadata == "nobody listens":
            raise Unavailable(metadata)
        told.append((group, {one.partition: end for one, end in offsets.items()}, metadata))

    monkeypatch.setattr(module, "commit_offsets", commit)
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
