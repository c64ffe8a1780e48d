"""`anabranch table` against a broker, as processes; the tables are made without Spark."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from anabranch.cli import table
from anabranch.pipelines.tables.maintainer import Maintainer
from anabranch.pipelines.tables.run import Wanted
from anabranch.pipelines.tables.tasks import run_here
from tests.support.broker import BrokerProcess
from tests.support.command import anabranch, from_json
from tests.support.tables import Tables, in_one_hour

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'
FRAME = b"\0\0\0\0\x01"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli"), {"anabranch.table.maintain": "false"}) as started:
        yield started


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    def at_broker(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        return anabranch(*arguments, bootstrap=broker.bootstrap, **options)  # type: ignore[arg-type]

    return at_broker


def fill(broker: BrokerProcess, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for at_ms, value in enumerate(values, in_one_hour(len(values))):
        producer.produce(topic, value, partition=0, timestamp=at_ms)
    assert producer.flush(30) == 0


def test_from_enabling_to_disabling(broker: BrokerProcess, run: Run) -> None:
    run("topic", "create", "orders", "--partitions", "2")
    assert "is not kept as a table" in run("table", "describe", "orders", exit_code=1).stderr
    told = run("table", "enable", "orders", "--retention", "90d").stdout
    place = Path(told.strip().rpartition(" in ")[2])
    assert place.parent == broker.data / "tables"
    assert from_json(run("table", "list", "--json"))[0]["files"] == 0
    fill(broker, "orders", [b"%d" % number for number in range(50)])
    assert from_json(run("table", "list", "--json"))[0]["lag"] == 50
    Tables(broker.bootstrap).round()
    fill(broker, "orders", [b"more"])
    found = from_json(run("table", "describe", "orders", "--json"))
    assert (found["location"], found["rows"], found["snapshot"]) == (str(place), 50, 1)
    assert found["partitions"][0] == {
        "partition": 0,
        "files": 1,
        "rows": 50,
        "from": 0,
        "to": 50,
        "log from": 0,
        "log to": 51,
        "lag": 1,
        "lost": 0,
    }
    (file,) = from_json(run("table", "describe", "orders", "--files", "--json"))
    assert pq.read_table(file["path"], columns=["offset"]).num_rows == 50
    assert "rows: 50" in run("table", "describe", "orders").stdout
    lag = from_json(run("group", "describe", "anabranch-table-orders", "--json"))
    assert "50" in str(lag), "groups show how far it is"
    assert "files stay" in run("table", "disable", "orders").stdout
    assert from_json(run("table", "list", "--json")) == []
    again = run("table", "enable", "orders", "--retention", "30d").stdout
    assert again == told, "it is where it was"
    moved = run("table", "enable", "orders", "--location", str(place.parent / "other"), exit_code=1)
    assert "has a table with 50 records" in moved.stderr
    (place / "_manifest" / f"{99:020}.json").write_text("no snapshot")
    (listed,) = from_json(run("table", "list", "--json"))
    assert "is damaged" in listed["problem"]
    assert Path(file["path"]).exists()


def test_values_by_their_schema_are_in_the_files(broker: BrokerProcess, run: Run, tmp_path: Path) -> None:
    run("topic", "create", "typed", "--partitions", "1")
    (tmp_path / "r.avsc").write_text(SCHEMA)
    run("schema", "register", "typed-value", str(tmp_path / "r.avsc"), "--http", broker.admin)
    told = run("table", "enable", "typed", "--location", str(tmp_path / "table"))
    assert "does not maintain tables there" in told.stderr
    fill(broker, "typed", [FRAME + b"\x02", b"no value", FRAME + b"\x04"])
    Maintainer(run_here, broker.bootstrap, broker.admin).round()
    (file,) = (tmp_path / "table").glob("hour=*/*.parquet")
    found = pq.ParquetFile(file).read().to_pydict()
    assert found["record"] == [{"a": 1}, None, {"a": 2}]
    assert found["value"][1] == b"no value"
    assert found["producerName"] == [None] * 3


def test_a_table_that_may_not_be_where_it_is_says_so(broker: BrokerProcess, run: Run, tmp_path: Path) -> None:
    run("topic", "create", "astray", "--partitions", "1")
    run("table", "enable", "astray", "--location", str(tmp_path / "table"))
    fill(broker, "astray", [b"1"])
    here, elsewhere = ([tmp_path], [tmp_path / "other"])
    for roots, problem in ((elsewhere, "not where tables are allowed"), (here, "none")):
        Maintainer(run_here, broker.bootstrap, roots=roots).round()
        assert problem in from_json(run("table", "describe", "astray", "--json"))["problem"]
    assert from_json(run("table", "describe", "astray", "--json"))["rows"] == 1


@pytest.mark.parametrize("given", [[], ["/elsewhere", "/a"]], ids=["none", "some"])
def test_by_hand_tables_are_maintained_where_the_broker_allows_them(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    seen: list[Wanted] = []
    monkeypatch.setattr("anabranch.pipelines.tables.run.run", lambda wanted, tell: seen.append(wanted))
    roots = [Path(one) for one in given] or None
    table.run("local", 60.0, "", True, roots, False, broker.bootstrap)
    assert [wanted.roots for wanted in seen] == [roots or [broker.data / "tables"]]


def test_what_is_wrong_is_said(run: Run) -> None:
    assert "no topic" in run("table", "enable", "nowhere", exit_code=1).stderr
    run("topic", "create", "plain")
    assert "is no time" in run("table", "enable", "plain", "--retention", "soon", exit_code=2).stderr
    wanted = ["topic", "alter", "plain", "--config", "anabranch.table.enable=true"]
    assert "needs anabranch.table.location" in run(*wanted, exit_code=1).stderr
