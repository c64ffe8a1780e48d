"""A pipeline from topic to table and topic: it is killed, its driver is killed; every row is there once."""

import json
import os
import signal
import time
from collections import Counter

import pytest
from confluent_kafka import Producer

from anabranch.pipelines import status
from anabranch.pipelines.flows import DONE, FAILED, RUNNING
from anabranch.pipelines.project import Project
from tests.pipelines.conftest import Run, finish, letters_in, on_spark, rows_of
from tests.pipelines.numbers import BAD, DEFINITIONS, RECORDS, fill
from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap)


def test_a_run_that_is_killed_is_taken_up_where_it_was(
    broker: BrokerProcess, topics: Topics, project: Project
) -> None:
    topics.create(2, "counted")
    topics.create(2, "copy")
    topics.create(1, "dead")
    fill(broker.bootstrap, 0, RECORDS)
    killed = on_spark(project.folder, broker.bootstrap, "run")
    wait_for_batches(project, 1)
    killed.send_signal(signal.SIGKILL)
    finish(killed)
    assert state_of(project) == status.INTERRUPTED

    bereft = on_spark(project.folder, broker.bootstrap, "run")
    wait_for_batches(project, 1)
    bereft.kill_driver()
    code, _, complained = finish(bereft)
    assert code == 1
    assert "Spark's driver has ended in the middle of its work: killed by SIGKILL" in complained
    assert "Traceback" not in complained
    assert state_of(project) == FAILED

    fill(broker.bootstrap, RECORDS, RECORDS + 100)
    code, said, complained = finish(on_spark(project.folder, broker.bootstrap, "run", "--json"))
    assert (code, complained) == (0, "")
    assert json.loads(said)["state"] == DONE

    check_tables(project)
    check_topics(topics)
    check_status(broker, project)


def wait_for_batches(project: Project, batches: int) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        found = status.read(project)
        under_way = found is not None and found["state"] == RUNNING
        if found and under_way and any(flow["batches"] >= batches for flow in found["flows"].values()):
            return
        time.sleep(0.05)
    raise AssertionError("the run does not get on")


def state_of(project: Project) -> str:
    found = status.read(project)
    assert found is not None
    return str(found["state"])


def check_tables(project: Project) -> None:
    assert project.local_storage is not None
    tables = project.local_storage / "tables"
    numbers = sorted(row["number"] for row in rows_of(tables / "numbers"))
    assert numbers == list(range(RECORDS + 100))
    offsets = Counter((row["partition"], row["offset"]) for row in rows_of(tables / "offsets"))
    assert len(offsets) == offsets.total() == RECORDS + 100 + 2 * len(BAD)
    import pyarrow.parquet as pq

    (sums,) = [row for file in (tables / "sums").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sums == {"count": len(numbers), "sum": sum(numbers)}


def check_topics(topics: Topics) -> None:
    expected = Counter(json.dumps({"number": number}).encode() for number in range(RECORDS + 100))
    expected.update(2 * list(BAD.values()))
    assert Counter(topics.values("copy")) == expected
    dead = letters_in(topics.bootstrap, "dead")
    assert Counter((letter.key, letter.value) for letter in dead) == Counter(2 * list(BAD.items()))
    for letter in dead:
        assert letter.headers["from"] == "test"
        assert letter.headers["dead-letter.topic"] == "counted"
        assert letter.headers["dead-letter.table"] == "numbers"
        assert letter.headers["dead-letter.partition"] == "0"
    assert len({letter.headers["dead-letter.offset"] for letter in dead}) == 2 * len(BAD)
    reasons = {letter.key: letter.headers["dead-letter.reason"] for letter in dead}
    assert reasons == {
        "torn": "value is not JSON of the schema",
        "text": "value is not JSON of the schema",
        "no number": "is a number; is positive",
        "negative": "is positive",
    }


def check_status(broker: BrokerProcess, project: Project) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("counted", b'{"number": 0}', partition=1)
    assert producer.flush(90) == 0
    code, said, _ = finish(Run(project.folder, broker.bootstrap, "status", "--json"))
    assert code == 0
    found = json.loads(said)
    assert found["state"] == DONE
    behind = {name: flow["behind"] for name, flow in found["flows"].items()}
    assert behind == {
        "numbers": 1,
        "numbers_dead_letters": 1,
        "copying": 1,
        "offsets": 1,
        "sums": None,
    }


@pytest.mark.skipif(not os.environ.get("ANABRANCH_SOAK"), reason="a JVM more; ANABRANCH_SOAK=1 runs it")
def test_a_dry_run_looks_for_topics_and_makes_nothing(broker: BrokerProcess, project: Project) -> None:
    with project.spec.open("a") as spec:
        spec.write("database: shop\n")
    numbers = project.folder / "transformations" / "numbers.py"
    numbers.write_text(DEFINITIONS.replace('"counted", "number', '"nowhere", "number'))
    code, _, complained = finish(on_spark(project.folder, broker.bootstrap, "dry-run"))
    assert code == 1
    assert "topics that are not there: nowhere, which is read" in complained
    assert "anabranch topic create" in complained
    assert project.local_storage is not None
    assert not (project.local_storage / "tables").exists()
