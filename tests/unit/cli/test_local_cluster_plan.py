"""What the processes of a local cluster are started with."""

import json
from itertools import count
from pathlib import Path

import pytest

from anabranch.base.errors import Corrupt, Invalid
from anabranch.cli.local_cluster.plan import (
    Founded,
    Wanted,
    broker_ports,
    broker_process,
    founded,
    replication_defaults,
    zookeeper_process,
)

DATA = Path("/somewhere")


def free() -> int:
    raise AssertionError("no port was to be chosen")


def test_a_new_cluster_has_three_brokers_or_as_many_as_wanted() -> None:
    assert founded(None, Wanted(data=DATA)) == Founded([1, 2, 3], None)
    assert founded(None, Wanted(data=DATA, brokers=1, zookeeper="z:1/c")) == Founded([1], "z:1/c")


def test_an_old_one_has_those_that_it_had() -> None:
    said = json.dumps({"brokers": [1, 2, 5], "zookeeper": "z:1"}).encode()
    assert founded(said, Wanted(data=DATA)) == Founded([1, 2, 5], "z:1")
    assert founded(said, Wanted(data=DATA, brokers=5, zookeeper="z:1")) == Founded([1, 2, 5, 6, 7], "z:1")


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted(data=DATA, brokers=2), "has 3 brokers, 2 are too few"),
        (Wanted(data=DATA, zookeeper="z:2"), "is kept by a ZooKeeper of its own, not by z:2"),
    ],
)
def test_what_an_old_one_cannot_be(wanted: Wanted, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        founded(b'{"brokers": [1, 2, 3], "zookeeper": null}', wanted)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"brokers": ["x"], "zookeeper": null}'])
def test_a_file_that_is_damaged(content: bytes) -> None:
    with pytest.raises(Corrupt, match="does not say"):
        founded(content, Wanted(data=DATA))


@pytest.mark.parametrize(("brokers", "factor", "least"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (9, 3, 2)])
def test_topics_are_on_three_brokers_or_all(brokers: int, factor: int, least: int) -> None:
    replication, in_sync = str(factor), str(least)
    assert replication_defaults(brokers) == {
        "default.replication.factor": replication,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replication,
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replication,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def test_ports_count_up() -> None:
    assert broker_ports(1, Wanted(data=DATA), free) == {"kafka": 9092, "pulsar": 6650, "http": 8080}
    assert broker_ports(3, Wanted(data=DATA), free) == {"kafka": 9094, "pulsar": 6652, "http": 8082}
    told = Wanted(data=DATA, kafka_port=100, pulsar_port=200, http_port=-1)
    assert broker_ports(2, told, free) == {"kafka": 101, "pulsar": 201, "http": -1}


def test_free_ports_are_for_all_that_nobody_named() -> None:
    numbers = count(50_000)
    ports = broker_ports(2, Wanted(data=DATA, kafka_port=0, pulsar_port=-1), lambda: next(numbers))
    assert ports == {"kafka": 50_000, "pulsar": -1, "http": 50_001}


def test_a_brokers_command() -> None:
    wanted = Wanted(data=DATA, host="::1", http_port=-1, settings=("a=1",), config=DATA / "x.toml")
    planned = broker_process(2, wanted, "z:1/c", "machine", {"b": "2"}, free)
    assert (planned.role, planned.id) == ("broker", "broker-2")
    assert planned.ports == {"kafka": 9093, "pulsar": 6651}
    assert planned.folder == DATA / "broker-2" / "data"
    said = " ".join(planned.command)
    assert " broker --id 2 --zookeeper z:1/c --host-id machine --host ::1 " in said
    assert " --kafka-port 9093 --pulsar-port 6651 --http-port -1 --config /somewhere/x.toml " in said
    assert said.index("--set b=2") < said.index("--set a=1"), "the later wins"
    assert said.endswith("--data /somewhere/broker-2/data --ready-file /somewhere/broker-2/ready.json")


def test_settings_of_one_broker(tmp_path: Path) -> None:
    (tmp_path / "broker-2").mkdir()
    (tmp_path / "broker-2" / "broker.properties").write_text("# where it stands\nbroker.rack = r2\n")
    wanted = Wanted(data=tmp_path, settings=("a=1",))
    said = " ".join(broker_process(2, wanted, "z:1/c", "machine", {}, free).command)
    assert said.index("--set a=1") < said.index("--set broker.rack=r2"), "the later wins"
    other = broker_process(1, wanted, "z:1/c", "machine", {}, free)
    assert "broker.rack" not in " ".join(other.command)


def test_zookeepers_command() -> None:
    planned = zookeeper_process(Wanted(data=DATA), free)
    assert planned.ports == {"client": 2181}
    assert " zookeeper --port 2181 --data /somewhere/zookeeper/data " in " ".join(planned.command)
    assert zookeeper_process(Wanted(data=DATA, kafka_port=0), lambda: 7).ports == {"client": 7}
