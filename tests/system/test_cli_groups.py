"""`anabranch group` and `anabranch transaction` against a broker, as processes."""

import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition

from tests.compat.clients import raw
from tests.support.broker import BrokerProcess
from tests.support.command import anabranch, from_json

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PATIENCE_S = 90
RECORDS = 100
TRANSACTIONAL = 16
CONSUMER_GROUP_HEARTBEAT = 68
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "transaction.partition.verification.enable": "false",  # so that a transaction can be lost
    }
    with BrokerProcess(tmp_path_factory.mktemp("cli"), settings) as started:
        yield started


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    def with_bootstrap(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        return anabranch(*arguments, bootstrap=broker.bootstrap, **options)  # type: ignore[arg-type]

    return with_bootstrap


@pytest.fixture
def topic(run: Run) -> str:
    """A topic with two partitions and 100 records in each."""
    name = f"topic-{next(_numbers)}"
    run("topic", "create", name, "--partitions", "2")
    for partition in ("0", "1"):
        run("produce", name, "-p", partition, stdin="".join(f"{i}\n" for i in range(RECORDS)))
    return name


def commit(broker: BrokerProcess, group: str, topic: str, **offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, int(index[1:]), offset) for index, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(run: Run, group: str) -> dict[int, int]:
    (described,) = from_json(run("group", "describe", group, "--json"))
    return {row["partition"]: row["committed"] for row in described["partitions"]}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_assignment_and_lag(run: Run, broker: BrokerProcess, topic: str, protocol: str) -> None:
    group = f"readers-{protocol}"
    timeouts = {"session.timeout.ms": 20_000} if protocol == "classic" else {}
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # what it happens to read does not count
            **timeouts,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition(topic, 1, 70)], asynchronous=False)
    # A member of the newer protocol knows what it has before the group has heard that it does.
    stable = {"group": group, "protocol": protocol, "state": "stable"}
    while stable not in from_json(run("group", "list", "--json")):
        assert time.monotonic() < deadline
    (described,) = from_json(run("group", "describe", group, "--json"))
    (member,) = described["members"]
    assert (member["client"], member["reads"]) == ("reader", [[topic, 0], [topic, 1]])
    first, second = described["partitions"]
    assert (first["end"], first["member"]) == (RECORDS, member["member"])
    assert (second["committed"], second["end"], second["lag"]) == (70, RECORDS, 30)
    assert f"{topic}:0,1" in run("group", "describe", group).stdout
    for command in (["reset", group, "--to", "earliest"], ["delete", group]):
        refused = run("group", *command, exit_code=1).stderr.splitlines()
        assert refused[0] == f"anabranch: group '{group}' is in use: 1 member, stable"
        assert "stop its members" in refused[1]
    consumer.close()
    run("group", "reset", group, "--to", "earliest", "--topic", topic)
    assert committed(run, group) == {0: 0, 1: 0}
    assert run("group", "delete", group).stdout == f"deleted {group}\n"
    assert group not in run("group", "list").stdout


def test_a_share_group(run: Run, broker: BrokerProcess, topic: str) -> None:
    group = f"sharers-{topic}"
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "sharer"}
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        consumer.poll(timeout=0.1)
        assert time.monotonic() < deadline
        if {"group": group, "protocol": "share", "state": "stable"} in from_json(
            run("group", "list", "--json")
        ):
            (described,) = from_json(run("group", "describe", group, "--json"))
            if [part["lag"] for part in described["partitions"]] == [0, 0]:  # it begins at the end
                break
    (member,) = described["members"]
    assert (member["client"], member["reads"]) == ("sharer", [[topic, 0], [topic, 1]])
    assert described["partitions"][1] == {
        "topic": topic,
        "partition": 1,
        "start": RECORDS,
        "lag": 0,
        "members": [member["member"]],
    }
    assert f"{topic}:0,1" in run("group", "describe", group).stdout
    for command in (["reset", group, "--to", "earliest"], ["delete", group]):
        refused = run("group", *command, exit_code=1).stderr.splitlines()
        assert refused[0] == f"anabranch: group '{group}' is in use: 1 member, stable"
    consumer.close()
    run("group", "reset", group, "--to", "earliest")
    run("group", "reset", group, "--by", "30", "--topic", topic, "--partition", "1")
    (described,) = from_json(run("group", "describe", group, "--json"))
    assert [(part["start"], part["lag"]) for part in described["partitions"]] == [(0, 100), (30, 70)]
    assert run("group", "delete", group).stdout == f"deleted {group}\n"
    assert group not in run("group", "list").stdout


def test_a_group_that_waits_for_a_member(run: Run, broker: BrokerProcess, topic: str) -> None:
    """The first has both partitions and never hears that it should give one to the second."""
    group = f"waiting-{topic}"
    with raw.Connection(broker.bootstrap) as connection:
        for member in ("first", "second"):
            told = {
                "group_id": group,
                "member_id": member,
                "member_epoch": 0,
                "rebalance_timeout": 60_000,
                "subscribed_topic_names": [topic],
                "topic_partitions": [],
            }
            assert connection.call(CONSUMER_GROUP_HEARTBEAT, 1, told).error_code == 0
            deadline = time.monotonic() + PATIENCE_S
            while len(from_json(run("group", "describe", group, "--json"))[0]["partitions"]) < 2:
                assert time.monotonic() < deadline
        listed = from_json(run("group", "list", "--json"))
        assert {"group": group, "protocol": "consumer", "state": "rebalancing"} in listed


def test_where_a_group_can_be_sent(run: Run, broker: BrokerProcess, topic: str) -> None:
    group = f"sent-{topic}"
    commit(broker, group, topic, p0=40, p1=60)
    assert committed(run, group) == {0: 40, 1: 60}
    shown = from_json(run("group", "reset", group, "--to", "earliest", "--dry-run", "--json"))
    assert shown["dry_run"]
    assert shown["partitions"] == [
        {"topic": topic, "partition": 0, "from": 40, "to": 0},
        {"topic": topic, "partition": 1, "from": 60, "to": 0},
    ]
    assert committed(run, group) == {0: 40, 1: 60}

    def sent(*arguments: str) -> dict[int, int]:
        done = from_json(run("group", "reset", group, *arguments, "--json"))
        return {row["partition"]: row["to"] for row in done["partitions"]}

    assert sent("--by", "-50") == {0: 0, 1: 10}
    assert sent("--by", "95") == {0: 95, 1: 100}
    assert sent("--to", "33", "--topic", topic, "--partition", "1") == {1: 33}
    assert committed(run, group) == {0: 95, 1: 33}
    assert sent("--to", "latest") == {0: 100, 1: 100}
    assert sent("--to", "1h") == {0: 0, 1: 0}
    assert sent("--to", "2999-01-01") == {0: 100, 1: 100}
    assert sent("--to", "@0", "-t", topic) == {0: 0, 1: 0}


def test_a_group_that_is_made_by_a_reset(run: Run, topic: str) -> None:
    group = f"made-{topic}"
    assert "there is no group" in run("group", "reset", group, "--to", "5", exit_code=1).stderr
    assert "no committed offset" in run("group", "reset", group, "--by", "5", "-t", topic, exit_code=1).stderr
    run("group", "reset", group, "--to", "5", "--topic", topic)
    assert committed(run, group) == {0: 5, 1: 5}
    assert group in run("group", "list").stdout


def test_settings_of_a_group(run: Run, topic: str) -> None:
    group = f"set-{topic}"
    refused = run("group", "alter", group, "-c", "consumer.session.timeout.ms=1", exit_code=1).stderr
    assert "consumer.session.timeout.ms" in refused
    run(
        "group",
        "alter",
        group,
        "-c",
        "consumer.session.timeout.ms=50000",
        "-c",
        "share.isolation.level=read_committed",
    )
    run("group", "alter", group, "--unset", "share.isolation.level")
    run("group", "reset", group, "--to", "5", "--topic", topic)
    (described,) = from_json(run("group", "describe", group, "--json"))
    assert described["configs"] == {"consumer.session.timeout.ms": "50000"}
    assert "  consumer.session.timeout.ms=50000\n" in run("group", "describe", group).stdout
    assert "nothing to change" in run("group", "alter", group, exit_code=2).stderr


def test_groups_that_are_not_there(run: Run, topic: str) -> None:
    for command in ("describe", "delete"):
        refused = run("group", command, "absent", exit_code=1).stderr
        assert "there is no group" in refused.splitlines()[0]
    assert run("group", "delete", "absent", "--if-exists").stdout == ""
    absent = run("group", "reset", "g", "--to", "latest", "-t", topic, "-p", "9", exit_code=2)
    assert "has no partition 9" in absent.stderr


def test_a_group_outlives_its_topic(run: Run, broker: BrokerProcess, topic: str) -> None:
    group = f"left-{topic}"
    commit(broker, group, topic, p0=1)
    run("topic", "delete", topic)
    described = run("group", "describe", group, "--json", exit_code=None)
    if described.returncode == 0:  # offsets of a topic that is gone may go along with it
        assert all(row["end"] is None for row in from_json(described)[0]["partitions"])


def transactional(broker: BrokerProcess, id: str, topic: str) -> Producer:
    """A producer with an open transaction that has a record on each partition, and stays open for long."""
    told = {"bootstrap.servers": broker.bootstrap, "transactional.id": id, "log_level": 0}
    producer = Producer(told | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"open", partition=partition)
    producer.flush(PATIENCE_S)
    return producer


def readable(run: Run, topic: str) -> int:
    """How many records a reader of committed ones gets."""
    return len(run("consume", topic).stdout.splitlines())


def test_an_open_transaction(run: Run, broker: BrokerProcess, topic: str) -> None:
    id = f"open-{topic}"
    producer = transactional(broker, id, topic)
    run("produce", topic, "-p", "0", "-v", "behind it")
    assert readable(run, topic) == 2 * RECORDS
    (listed,) = (row for row in from_json(run("transaction", "list", "--json")) if row["id"] == id)
    assert listed["state"] == "Ongoing"
    assert id in run("transaction", "list", "--state", "Ongoing").stdout
    (described,) = from_json(run("transaction", "describe", id, "--json"))
    assert described["partitions"] == [
        {"topic": topic, "partition": index, "first_offset": RECORDS} for index in (0, 1)
    ]
    assert described["started"]
    assert id in run("transaction", "describe", id).stdout
    on_topic = from_json(run("transaction", "list", "--topic", topic, "--json"))
    assert [(row["partition"], row["id"]) for row in on_topic] == [(0, id), (1, id)]
    known = ("--topic", topic, "--partition", "0", "--producer-id", str(listed["producer_id"]))
    assert "is not lost" in run("transaction", "abort", *known, exit_code=1).stderr
    run("transaction", "abort", id)
    assert readable(run, topic) == 2 * RECORDS + 1
    assert "nothing is open" in run("transaction", "list", "--topic", topic).stderr
    assert "no open transaction" in run("transaction", "abort", id, exit_code=1).stderr
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)


def test_a_transaction_that_nobody_knows_of(run: Run, broker: BrokerProcess, topic: str) -> None:
    with raw.Connection(broker.bootstrap) as connection:
        producer_id = raw.new_producer(connection)
        now_ms = int(time.time() * 1000)
        data = raw.batch([b"lost"], producer=(producer_id, 0, 0), attributes=TRANSACTIONAL, base_ms=now_ms)
        told = [{"name": topic, "partition_data": [{"index": 1, "records": data}]}]
        values = {"transactional_id": "nobody", "acks": -1, "timeout": 5000, "topic_data": told}
        answer = connection.call(raw.PRODUCE, 9, values)
        assert answer.responses[0].partition_responses[0].error_code == 0
    run("produce", topic, "-p", "1", "-v", "behind it")
    assert readable(run, topic) == 2 * RECORDS
    (row,) = from_json(run("transaction", "list", "--topic", topic, "--json"))
    assert (row["partition"], row["producer_id"], row["id"]) == (1, producer_id, None)
    where = ("--topic", topic, "--partition", "1", "--producer-id", str(producer_id))
    run("transaction", "abort", *where)
    assert readable(run, topic) == 2 * RECORDS + 1
    assert "nothing open" in run("transaction", "abort", *where, exit_code=1).stderr


def test_transactions_that_are_not_there(run: Run) -> None:
    for command in ("describe", "abort"):
        assert "no transactional id" in run("transaction", command, "absent", exit_code=1).stderr
    assert "no state 'Odd'" in run("transaction", "list", "--state", "Odd", exit_code=2).stderr
    assert "UNKNOWN_TOPIC" in run("transaction", "list", "--topic", "absent", exit_code=1).stderr


def test_nobody_there() -> None:
    for arguments in (["group", "list"], ["transaction", "list"]):
        refused = anabranch(*arguments, bootstrap="127.0.0.1:1", exit_code=1).stderr.splitlines()
        assert refused[0] == "anabranch: no broker answers at 127.0.0.1:1"
