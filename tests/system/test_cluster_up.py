"""`anabranch cluster`: a cluster of real processes, and what becomes of them.

One cluster for all tests here; each leaves it whole.  Its sessions are long, so that what does not wait for
their end is seen.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch import __version__
from anabranch.cli.local_cluster.control import ask
from anabranch.client.answers import check
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import CONTROLLER
from anabranch.client.requests import Request
from anabranch.client.settings import Settings
from tests.support.broker import without_settings
from tests.support.command import PROGRAM, anabranch, from_json
from tests.support.local_cluster import LocalCluster, wait_for_json
from tests.support.speed import slowness

_ALTER_REASSIGNMENTS = 45
BROKERS = ("broker-1", "broker-2", "broker-3")

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"broker.session.timeout.ms": "60000"}
    with LocalCluster(tmp_path_factory.mktemp("cluster"), settings=settings) as cluster:
        yield cluster


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_it_says_what_runs_and_where(cluster: LocalCluster) -> None:
    rows = cluster.rows()
    assert list(rows)[:4] == ["zookeeper", *BROKERS]
    for id in BROKERS:
        row = rows[id]
        assert (row["role"], row["state"]) == ("broker", "running")
        assert is_there(row["pid"])
        assert set(row["ports"]) == {"kafka", "pulsar", "http"}
        assert Path(row["folder"], "meta.properties").is_file()
        assert Path(row["log"]).is_file()
    ready = cluster.ready
    assert ready["version"] == __version__
    assert ready["kafka"].split(",") == [f"127.0.0.1:{rows[id]['ports']['kafka']}" for id in BROKERS]
    assert ready["pulsar"].count(",") == 2
    assert ready["zookeeper"] == f"127.0.0.1:{rows['zookeeper']['ports']['client']}"
    shown = cluster.tell("status").stdout
    assert re.search(r"^broker +broker-2 +\d+ +running +kafka \d+,pulsar \d+,http \d+ ", shown, re.MULTILINE)


def test_it_is_ready_in_ten_seconds(cluster: LocalCluster) -> None:
    """Where others have the processors, what it took of them counts: two have time for twice as much."""
    found = re.search(r"a cluster of 3 serves after ([\d.]+) s", cluster.log.read_text())
    assert found is not None
    assert float(found[1]) < 10 or cluster.start_computed_s < 10 * slowness(), cluster.start_computed_s


def test_clients_work_on_it(cluster: LocalCluster) -> None:
    """With replicas, and a group: the topics of the cluster's own have three replicas, too."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 6, 3)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(300):
        producer.produce("orders", str(number).encode(), key=str(number).encode())
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    read: set[bytes] = set()
    while len(read) < 300:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        read.add(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    topics = admin.list_topics(timeout=60).topics
    assert {tuple(sorted(partition.replicas)) for partition in topics["orders"].partitions.values()} == {
        (1, 2, 3)
    }
    assert len({partition.leader for partition in topics["orders"].partitions.values()}) == 3
    assert {len(partition.replicas) for partition in topics["__consumer_offsets"].partitions.values()} == {3}


def test_what_dies_is_started_again_and_does_not_wait_for_its_session(cluster: LocalCluster) -> None:
    before = cluster.row("broker-2")
    os.kill(before["pid"], signal.SIGKILL)
    after = cluster.until(
        "broker-2", lambda row: row["restarts"] > before["restarts"] and row["state"] == "running"
    )
    assert after["pid"] != before["pid"]
    assert after["ports"] == before["ports"]
    assert (
        "broker-2: ended by itself, killed by SIGKILL; it is started again in 0.2 s"
        in cluster.log.read_text()
    )
    logs = "".join(map(cluster.log_of, BROKERS))
    removed = (
        r"broker 2: removed what an earlier start|broker 2: closed its connection .* removed its registration"
    )
    assert re.search(removed, logs), "its session was waited for"


def test_another_process_with_an_id_in_use_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    refused = anabranch(
        "broker", "--id", "1", "--zookeeper", cluster.ready["zookeeper"], "--data", str(tmp_path),
        "--kafka-port", "0", exit_code=1,
    )  # fmt: skip
    assert "broker id 1 is in use by another process; set another node.id" in refused.stderr


def test_what_was_killed_stays_down_until_it_is_started(cluster: LocalCluster) -> None:
    pid = cluster.row("broker-3")["pid"]
    cluster.tell("kill", "broker-3")
    assert not is_there(pid)
    row = cluster.row("broker-3")
    assert (row["state"], row["pid"]) == ("killed", None)
    assert "only what is running can be paused" in cluster.tell("pause", "broker-3", exit_code=1).stderr
    cluster.tell("restart", "broker-3")
    assert cluster.row("broker-3")["state"] == "running"


def test_the_state_of_the_partitions(cluster: LocalCluster) -> None:
    anabranch("topic", "create", "looked-at", "--partitions", "3", bootstrap=cluster.bootstrap)
    anabranch("topic", "create", "one-copy", "--replication-factor", "1", bootstrap=cluster.bootstrap)
    cluster.tell("kill", "broker-3")
    deadline = time.monotonic() + 60
    while True:
        status = from_json(cluster.tell("status", "--bootstrap", cluster.bootstrap, "--json"))
        lacking = [row["osr"] for row in status["under_replicated"] if row["topic"] == "looked-at"]
        if lacking == [[3], [3], [3]] and status["controller"] in (1, 2):
            break
        assert time.monotonic() < deadline, status
    assert [(broker["broker"], broker["state"]) for broker in status["brokers"]] == [
        (1, "there"),
        (2, "there"),
        (3, "away"),
    ]
    assert not [row for row in status["under_min_isr"] if row["leader"] is not None], (
        "two of three are enough"
    )
    cluster.tell("restart", "broker-3")
    shown = cluster.tell("status", "--bootstrap", cluster.bootstrap).stdout
    assert re.search(r"^ +3  there ", shown, re.MULTILINE)
    assert "\noffline: none\n" in shown


def test_pause_and_resume(cluster: LocalCluster) -> None:
    """Also that a look at a topic does not wait for a broker that stands still."""
    anabranch("topic", "create", "followed", "--partitions", "3", bootstrap=cluster.bootstrap)
    (described,) = from_json(
        anabranch("topic", "describe", "followed", "--json", bootstrap=cluster.bootstrap)
    )
    assert all(row["lag"] == {"1": 0, "2": 0, "3": 0} for row in described["partitions"]), described
    cluster.tell("pause", "broker-1")
    row = cluster.row("broker-1")
    assert row["state"] == "paused"
    assert Path(f"/proc/{row['pid']}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    assert "paused" in cluster.tell("pause", "broker-1", exit_code=1).stderr
    began = time.monotonic()
    others = ",".join(cluster.bootstrap.split(",")[1:])
    (described,) = from_json(anabranch("topic", "describe", "followed", "--json", bootstrap=others))
    took_s = time.monotonic() - began
    by_leader = {row["leader"]: row for row in described["partitions"]}
    standing, *moving = (by_leader[leader] for leader in (1, 2, 3))
    assert (standing["leo"], standing["hw"], standing["lw"]) == (None, None, None)
    assert set(standing["lag"].values()) == {None}
    for row in moving:
        assert row["lag"] == {"1": None, "2": 0, "3": 0}
        assert (row["lw"], row["leo"]) == (0, 0)
    assert took_s < 3 + 5 * slowness(), "the broker that stands still held it up"
    shown = anabranch("topic", "describe", "followed", bootstrap=others).stdout
    assert re.search(r"^ +\d +1 .* \? +\? +\? +1:\?,", shown, re.MULTILINE)
    cluster.tell("resume", "broker-1")
    assert cluster.row("broker-1")["state"] == "running"
    assert "not paused" in cluster.tell("resume", "broker-1", exit_code=1).stderr


def test_one_more(cluster: LocalCluster) -> None:
    cluster.tell("add")
    row = cluster.row("broker-4")
    assert row["state"] == "running"
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{row['ports']['kafka']}"})
    assert set(admin.list_topics(timeout=60).brokers) == {1, 2, 3, 4}


def test_a_reassignment_and_how_far_it_is(cluster: LocalCluster) -> None:
    """The broker that is added stands still."""

    def status() -> Any:
        return from_json(cluster.tell("status", "--bootstrap", cluster.bootstrap, "--json"))

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moved", 1, replica_assignment=[[1, 2, 3]])])["moved"].result(60)
    cluster.tell("pause", "broker-4")
    part = {"partition_index": 0, "replicas": [4, 1]}
    values = {"timeout": 60_000, "topics": [{"name": "moved", "partitions": [part]}]}
    with Cluster(Settings(cluster.bootstrap)) as client:
        check(client.send(CONTROLLER, Request(_ALTER_REASSIGNMENTS, values)).error_code, "the reassignment")
    deadline = time.monotonic() + 60
    while not (rows := status()["reassignments"]):  # the broker that is asked may hear of it later
        assert time.monotonic() < deadline
    (row,) = rows
    assert (row["topic"], row["partition"], row["adding"], row["in_sync"]) == ("moved", 0, [4], [])
    assert row["lag"] == {"4": None}
    shown = cluster.tell("status", "--bootstrap", cluster.bootstrap).stdout
    assert re.search(r"^reassignments: 1\n.* in_sync +lag\nmoved .* 4:\?$", shown, re.MULTILINE)
    cluster.tell("resume", "broker-4")
    while status()["reassignments"]:
        assert time.monotonic() < deadline


def test_brokers_serve_on_without_zookeeper(cluster: LocalCluster) -> None:
    before = {id: row["pid"] for id, row in cluster.rows().items() if row["role"] == "broker"}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce("away", b"before")
    assert producer.flush(60) == 0
    cluster.tell("kill", "zookeeper")
    producer.produce("away", b"meanwhile")
    assert producer.flush(60) == 0
    cluster.tell("restart", "zookeeper")
    anabranch("topic", "create", "after", bootstrap=cluster.bootstrap)
    assert {id: row["pid"] for id, row in cluster.rows().items() if row["role"] == "broker"} == before


def test_it_cannot_run_twice(cluster: LocalCluster) -> None:
    refused = anabranch("cluster", "up", "--data", str(cluster.data), exit_code=1)
    assert "is in use by process" in refused.stderr
    refused = anabranch("standalone", "--data", str(cluster.data), exit_code=2)
    assert "holds a cluster of several brokers" in refused.stderr
    assert (
        "there is no process 'broker-9'; there are: zookeeper, broker-1"
        in cluster.tell("kill", "broker-9", exit_code=1).stderr
    )


def test_the_short_form(tmp_path: Path) -> None:
    """Also that Ctrl-C ends it, and that the supervisor takes all with it when it is killed."""
    command = [PROGRAM, "standalone", "--brokers", "2", "--kafka-port", "0", "--http-port", "-1"]
    command += ["--data", str(tmp_path / "data"), "--ready-file", str(tmp_path / "ready.json")]
    for sign, code in ((signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with (tmp_path / "errors.txt").open("w") as errors:
            process = subprocess.Popen([*command, "--verbose"], env=without_settings(), stderr=errors)
        ready = wait_for_json(tmp_path / "ready.json", process)
        assert ready["kafka"].count(",") == ready["pulsar"].count(",") == 1
        assert "http" not in ready
        assert "broker-2: serves" in (tmp_path / "errors.txt").read_text()
        pids = [row["pid"] for row in ready["processes"]]
        assert len(pids) == 3
        process.send_signal(sign)
        assert process.wait(60) == code
        deadline = time.monotonic() + 60
        while any(is_there(pid) for pid in pids):
            assert time.monotonic() < deadline
        (tmp_path / "ready.json").unlink(missing_ok=True)


def test_in_the_background(tmp_path: Path) -> None:
    """It says who holds the folder, and why it does not start."""
    command = ("up", "--detach", "--brokers", "1", "--kafka-port", "0")

    def told(verb: str, *more: str, exit_code: int | None = 0) -> "subprocess.CompletedProcess[str]":
        return anabranch("cluster", verb, "--data", str(tmp_path), *more, exit_code=exit_code)

    refused = told(*command, "--set", "num.partition=3", exit_code=2).stderr
    assert refused.startswith(
        "anabranch: the cluster did not start: the command line: unknown option num.partition;"
    )
    told(*command)
    try:
        supervisor = json.loads((tmp_path / "ready.json").read_text())["pid"]
        assert f"is in use by process {supervisor};" in told("up", exit_code=1).stderr
        with ThreadPoolExecutor() as beside, chdir(tmp_path), socket.socket(socket.AF_UNIX) as silent:
            silent.connect("control.sock")
            restarting = beside.submit(told, "restart", "broker-1", exit_code=1)
            while ask(tmp_path, "status")[1]["state"] != "starting":
                assert not restarting.done()
            ask(tmp_path, "kill", "broker-1")
            assert "broker-1 was told to end before it served" in restarting.result().stderr
            told("down")
            deadline = time.monotonic() + 60
            while is_there(supervisor):
                assert time.monotonic() < deadline, "it waits for whoever asks nothing"
    finally:
        told("down", exit_code=None)


def test_down_ends_all_of_it(cluster: LocalCluster) -> None:
    """The last one here."""
    pids = [row["pid"] for row in cluster.rows().values()]
    cluster.tell("down")
    assert not any(is_there(pid) for pid in pids)
    assert cluster.ended() == 0
    assert cluster.log.read_text().endswith("stopping\nstopped\n")
    assert "no cluster runs in" in cluster.tell("status", exit_code=1).stderr
