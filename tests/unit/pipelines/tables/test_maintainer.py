"""Rounds for tables in a folder, with a cluster of a few lines and work that is done as a test likes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import Unavailable
from anabranch.client.cluster import EARLIEST
from anabranch.client.destinations import TopicPartition
from anabranch.pipelines.tables import maintainer as module
from anabranch.pipelines.tables.copying import Copy, Done, Merge, failed
from anabranch.pipelines.tables.maintainer import Maintainer, Round
from anabranch.pipelines.tables.run import Wanted, keep_up
from anabranch.spark.ranges import Fetching
from anabranch.spark.table_settings import TableSettings
from anabranch.tables.changes import Copied, begun
from anabranch.tables.folder import TableFolder
from anabranch.tables.merging import VARIOUS
from anabranch.tables.snapshot import Snapshot, Span
from tests.unit.tables.conftest import data_file, laid_down

Work = Sequence[Copy | Merge]


class Logs:
    """A cluster's topics: for each its id, and for each of its partitions where its log begins and ends."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.spans: dict[TopicPartition, Span] = {}
        self.tables: list[TableSettings] = []
        self.told: dict[str, str] = {}

    def add(self, topic: str, folder: Path, *ends: int, **other: Any) -> None:
        self.ids[topic] = f"{topic}'s id"
        settings = {"retention_ms": -1, "delete_delay_ms": 0, **other}
        self.tables.append(TableSettings(topic, self.ids[topic], folder, **settings))
        for number, end in enumerate(ends):
            self.spans[TopicPartition(topic, number)] = Span(0, end)

    def __enter__(self) -> "Logs":
        return self

    def __exit__(self, *_: object) -> None: ...

    def topics(self) -> list[str]:
        return sorted(self.ids)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics}

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [one for one in self.spans if one.topic in topics]

    def offsets_at(self, times: Mapping[TopicPartition, int], *, committed: bool = False) -> dict[Any, int]:
        return {one: self.spans[one][0 if time == EARLIEST else 1] for one, time in times.items()}


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    logs = Logs()
    monkeypatch.setattr(module, "Cluster", lambda settings: logs)
    monkeypatch.setattr(module, "enabled_tables", lambda cluster, topics, must_know: logs.tables)

    def tell(self: object, topic: str, table: Snapshot | None, problem: str, cluster: object) -> None:
        logs.told[topic] = problem

    monkeypatch.setattr(module.Progress, "tell", tell)
    return logs


def copied(work: Work, how: Fetching) -> list[Done]:
    """All of it, without a byte."""
    return [done(one) for one in work]


def done(one: Copy | Merge, rows: bool = True) -> Done:
    assert isinstance(one, Copy)
    file = laid_down(one.folder, data_file(one.partition, one.start, one.end, max_ms=1, hour=VARIOUS))
    found = Copied(one.partition, Span(one.start, one.end), (file,) if rows else ())
    return Done(one.folder, one.topic_id, one.partition, found)


def maintained(run: Callable[[Work, Fetching], list[Done]] = copied, **other: Any) -> Maintainer:
    return Maintainer(run, "127.0.0.1:1", **other)


def table_in(folder: Path) -> Snapshot:
    table = TableFolder(folder).latest()
    assert table is not None
    return table


def test_two_topics_do_not_share_a_folder(logs: Logs, tmp_path: Path) -> None:
    logs.add("a", tmp_path / "table", 10)
    logs.add("b", tmp_path / "table", 20)
    found = maintained().round()
    assert "has the history of a topic 'a'" in found.problems["b"]
    table = table_in(tmp_path / "table")
    assert (table.topic_id, table.covered) == ("a's id", {0: Span(0, 10)})


def test_the_history_of_another_topic_is_not_expired(logs: Logs, tmp_path: Path) -> None:
    logs.add("a", tmp_path / "table", 10)
    maintainer = maintained()
    maintainer.round()
    logs.tables.clear()
    logs.add("b", tmp_path / "table", 20, retention_ms=1)
    assert list(maintainer.round().problems) == ["b"]
    assert len(table_in(tmp_path / "table").files) == 1
    logs.tables[0] = logs.tables[0]._replace(topic_id="a's id")
    logs.ids["b"] = "a's id"
    maintainer.round()
    assert [file.first for file in table_in(tmp_path / "table").files if file.end <= 10] == []


def test_a_folder_with_something_else_in_it_is_left_alone(logs: Logs, tmp_path: Path) -> None:
    other = tmp_path / "hour=2026-01-01-00" / "part-0.parquet"
    other.parent.mkdir()
    other.write_bytes(b"")
    logs.add("a", tmp_path, 10)
    assert "has no table, but" in maintained().round().problems["a"]
    assert other.exists()
    assert not (tmp_path / "_manifest").exists()


def test_tables_are_only_where_they_may_be(logs: Logs, tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "link").symlink_to(tmp_path)
    for topic, place in (("in", "allowed/a"), ("out", "b"), ("up", "allowed/../c"), ("by", "allowed/link/d")):
        logs.add(topic, tmp_path / place, 10)
    found = maintained(roots=[tmp_path / "allowed"]).round()
    assert sorted(found.problems) == ["by", "out", "up"]
    assert "anabranch.table.roots" in found.problems["out"]
    assert [path.name for path in tmp_path.iterdir()] == ["allowed"]
    assert logs.told == {**found.problems, "in": ""}, "whoever asks about a table hears of it"


def test_a_topic_made_anew_meanwhile_does_not_count(logs: Logs, tmp_path: Path) -> None:
    def made_anew(work: Work, how: Fetching) -> list[Done]:
        logs.ids["a"] = "a newer id"
        return copied(work, how)

    logs.add("a", tmp_path / "table", 10)
    assert "made anew" in maintained(made_anew).round().problems["a"]
    assert table_in(tmp_path / "table").files == []


@pytest.mark.parametrize(
    ("spoil", "why"),
    [(Path.unlink, "No such file"), (lambda file: file.write_bytes(b"half"), "it has 4 bytes, not 500")],
)
def test_files_that_only_an_executor_sees_do_not_count(
    logs: Logs, tmp_path: Path, spoil: Callable[[Path], object], why: str
) -> None:
    def elsewhere(work: Work, how: Fetching) -> list[Done]:
        found = copied(work, how)
        for file in (tmp_path / "table").glob("hour=*/*.parquet"):
            spoil(file)
        return found

    logs.add("a", tmp_path / "table", 10)
    found = maintained(elsewhere).round()
    assert why in found.problems["a"]
    assert "all executors of Spark" in found.problems["a"]
    assert table_in(tmp_path / "table").covered == {}
    assert maintained().round().problems == {}


def test_offsets_without_rows_are_got_through(logs: Logs, tmp_path: Path) -> None:
    logs.add("a", tmp_path / "table", 250)
    maintainer = maintained(lambda work, how: [done(one, rows=False) for one in work], most_offsets=100)
    assert [maintainer.round().is_behind for _ in range(3)] == [True, True, False]
    assert table_in(tmp_path / "table").covered == {0: Span(0, 250)}


def test_who_cannot_be_copied_is_behind_without_haste(logs: Logs, tmp_path: Path) -> None:
    tried = []

    def run(work: Work, how: Fetching) -> list[Done]:
        tried.extend([one.topic for one in work if isinstance(one, Copy)])
        bad = [one for one in work if isinstance(one, Copy) and one.topic == "bad"]
        return [*(failed(one, "no") for one in bad), *copied([one for one in work if one not in bad], how)]

    logs.add("bad", tmp_path / "bad", 1000)
    logs.add("good", tmp_path / "good", 150)
    maintainer = maintained(run, most_offsets=100)
    assert maintainer.round().is_behind
    found = maintainer.round()
    assert (found.rows, found.is_behind) == (50, False)
    assert found.problems == {"bad": "partition 0 could not be copied: no"}
    assert logs.told == {"bad": "partition 0 could not be copied: no", "good": ""}
    assert tried == ["bad", "good", "good"], "it is left alone for a while"


def test_a_partition_that_was_cut_does_not_stop_the_others(logs: Logs, tmp_path: Path) -> None:
    logs.add("a", tmp_path / "table", 10, 10)
    maintainer = maintained()
    maintainer.round()
    logs.spans[TopicPartition("a", 0)] = Span(0, 5)
    logs.spans[TopicPartition("a", 1)] = Span(0, 20)
    assert "it was cut" in maintainer.round().problems["a"]
    assert table_in(tmp_path / "table").covered == {0: Span(0, 10), 1: Span(0, 20)}


def test_if_spark_gives_up_on_a_partition_the_others_go_on(logs: Logs, tmp_path: Path) -> None:
    def run(work: Work, how: Fetching) -> list[Done]:
        if any(isinstance(one, Copy) and (one.topic, one.partition) == ("bad", 1) for one in work):
            raise Unavailable("Spark gave up")
        return copied(work, how)

    logs.add("bad", tmp_path / "bad", 10, 10, 10)
    logs.add("good", tmp_path / "good", 10)
    found = maintained(run).round()
    assert found.rows == 30
    assert found.problems == {"bad": "partition 1 could not be copied: Spark gave up"}
    assert sorted(table_in(tmp_path / "bad").covered) == [0, 2]


def test_a_damaged_table_is_its_own_problem(logs: Logs, tmp_path: Path) -> None:
    logs.add("bad", tmp_path / "bad", 10)
    logs.add("good", tmp_path / "good", 10)
    TableFolder(tmp_path / "bad").put(begun("bad", "bad's id", 1))
    (tmp_path / "bad" / "_manifest" / f"{0:020}.json").write_bytes(b"?")
    found = maintained().round()
    assert (found.rows, list(found.problems)) == (10, ["bad"])


def test_once_is_an_error_if_a_table_is_not_up_to_date(logs: Logs, tmp_path: Path) -> None:
    told: list[Round] = []
    wanted = Wanted("", "", "", 60, True, [])
    logs.add("a", tmp_path / "a", 250)
    keep_up(maintained(most_offsets=100), wanted, told.append)
    assert [one.rows for one in told] == [100, 100, 50]
    logs.add("b", tmp_path / "a", 10)
    with pytest.raises(Unavailable, match=r"topic 'b' is not up to date.*another --location"):
        keep_up(maintained(), wanted, told.append)
