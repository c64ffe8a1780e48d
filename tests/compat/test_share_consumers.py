"""Share groups of real clients: records shared out, given back, set aside, through kill -9 of anybody."""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pulsar
import pytest

from tests.compat.share_processes import (
    LOCK_S,
    SETTINGS,
    Member,
    Place,
    ShareGroup,
    eventually,
    make_topic,
    produce,
    read_all,
    tell_group,
)
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.timeout(900)

PARTITIONS = 2  # fewer than members, so that some have the same


@pytest.fixture
def broker(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return own_broker(SETTINGS)


@pytest.fixture
def share_group(broker: BrokerProcess, tmp_path: Path) -> Iterator[ShareGroup]:
    topic = make_topic(broker.bootstrap, "jobs", PARTITIONS)
    group = ShareGroup(tmp_path, broker.bootstrap, topic)
    tell_group(broker.bootstrap, group.group, {"share.auto.offset.reset": "earliest"})
    yield group
    group.end()


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"job %d" % number for number in range(start, start + count)]


@pytest.mark.plain_broker  # another leader gives out again what is locked
def test_members_share_and_one_is_killed(broker: BrokerProcess, share_group: ShareGroup) -> None:
    """What the dead one held is somebody else's, since its connection is gone."""
    doomed, slow, _ = (share_group.join("--work-ms", work) for work in ("400", "50", "10"))
    places: set[Place] = set()

    def have_some() -> bool:
        """Whoever is the last to start must not find that all is done."""
        if places <= share_group.settled():
            places.update(produce(broker.bootstrap, "jobs", numbered(500), PARTITIONS))
        all_had = all(any(line.what == "got" for line in member.lines()) for member in share_group.members)
        return all_had and doomed.lines()[-1].what == "got"  # and is at it

    eventually(have_some, lambda: "one of them got nothing")
    doomed.kill()
    places |= produce(broker.bootstrap, "jobs", numbered(1_000), PARTITIONS)
    share_group.finishes(places)
    slow.leave()
    share_group.check()


@pytest.mark.plain_broker  # another leader gives out again what is locked
def test_who_is_slower_than_its_lock_has_them_no_more(broker: BrokerProcess, tmp_path: Path) -> None:
    topic = make_topic(broker.bootstrap, "one")
    tell_group(broker.bootstrap, "slow", {"share.auto.offset.reset": "earliest"})
    group = ShareGroup(tmp_path, broker.bootstrap, topic, "slow")
    try:
        slow = group.join("--explicit", "--work-ms", str(int(LOCK_S * 1000) + 1_500))
        places = produce(broker.bootstrap, topic, numbered(60))
        eventually(lambda: any(line.what == "got" for line in slow.lines()), lambda: "it got nothing")
        group.join("--explicit")
        group.finishes(places)
        eventually(lambda: any(line.what == "settles" for line in slow.lines()), lambda: slow.lines()[-3:])
        group.check()
        assert any(line.rest == "2" for line in group.got()), "nothing was delivered again"
    finally:
        group.end()


@pytest.mark.plain_broker  # another leader has forgotten a delivery that was not settled
def test_poison_is_set_aside(broker: BrokerProcess, share_group: ShareGroup) -> None:
    """Released until it was delivered as often as allowed, or rejected: a dead letter says so."""
    make_topic(broker.bootstrap, "dlq.jobs", 2, errors_deadletterqueue_group_enable="true")
    tell_group(
        broker.bootstrap,
        share_group.group,
        {
            "errors.deadletterqueue.topic.name": "dlq.jobs",
            "errors.deadletterqueue.copy.record.enable": "true",
            "share.delivery.count.limit": "3",
        },
    )
    values = numbered(200)
    values[50], values[100] = b"poison", b"bad"
    places = produce(broker.bootstrap, "jobs", values, PARTITIONS)
    poison, bad = (50 % PARTITIONS, 50 // PARTITIONS), (100 % PARTITIONS, 100 // PARTITIONS)
    for _ in range(2):
        share_group.join("--explicit")
    share_group.finishes(places - {poison, bad})
    letters = {
        message.value(): dict(message.headers()) for message in read_all(broker.bootstrap, "dlq.jobs", 2)
    }
    assert letters.keys() == {b"poison", b"bad"}
    for value, place, count, why in (
        (b"poison", poison, b"3", b"Offset delivery count exceeded the threshold."),
        (b"bad", bad, b"1", b"Offset rejected by client."),
    ):
        assert letters[value] == {
            "__dlq.errors.topic": b"jobs",
            "__dlq.errors.partition": b"%d" % place[0],
            "__dlq.errors.offset": b"%d" % place[1],
            "__dlq.errors.group": b"workers",
            "__dlq.errors.delivery.count": count,
            "__dlq.errors.message": why,
        }
    time.sleep(LOCK_S / 2)
    times = [line.rest for line in share_group.got() if line.place == poison]
    assert times == ["1", "2", "3"]
    assert [line.rest for line in share_group.got() if line.place == bad] == ["1"]
    share_group.check()


@pytest.mark.parametrize("mode", [(), ("--explicit",)], ids=["implicit", "explicit"])
def test_a_broker_that_is_killed_forgets_nothing(
    broker: BrokerProcess, share_group: ShareGroup, mode: tuple[str, ...]
) -> None:
    for _ in range(2):
        share_group.join("--work-ms", "20", *mode)
    places = produce(broker.bootstrap, "jobs", numbered(1_500), PARTITIONS)
    eventually(lambda: len(share_group.settled()) > 200, lambda: len(share_group.settled()))
    broker.kill()
    broker.start()
    places |= produce(broker.bootstrap, "jobs", numbered(300, 1_500), PARTITIONS)
    share_group.finishes(places)
    for member in share_group.members:
        member.leave()
    share_group.check()


def test_a_consumer_that_closes_gives_back_what_it_did_not_look_at(
    broker: BrokerProcess, share_group: ShareGroup
) -> None:
    produce(broker.bootstrap, "jobs", numbered(10))
    told = {"bootstrap.servers": broker.bootstrap, "group.id": "workers", "log_level": 0}
    first = ck.ShareConsumer(told | {"share.acknowledgement.mode": "explicit"})
    first.subscribe(["jobs"])
    messages: list[ck.Message] = []
    deadline = time.monotonic() + 60
    while not messages and time.monotonic() < deadline:
        messages = list(first.poll(0.2))
    first.acknowledge(messages[0])
    for message in messages[1:]:
        first.acknowledge(message, ck.AcknowledgeType.RELEASE)
    first.close()
    share_group.join()
    share_group.finishes({(0, offset) for offset in range(1, 10)})
    assert (0, 0) not in {line.place for line in share_group.got()}


def test_what_pulsar_producers_wrote_is_shared_too(broker: BrokerProcess, share_group: ShareGroup) -> None:
    client = pulsar.Client(broker.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    for batching in (True, False):
        producer = client.create_producer(
            "jobs", batching_enabled=batching, compression_type=pulsar.CompressionType.LZ4
        )
        for number in range(50):
            producer.send_async(b"job %d" % number, None)
        producer.flush()
        producer.close()
    client.close()
    produce(broker.bootstrap, "jobs", numbered(50), PARTITIONS)
    share_group.join("--explicit")
    eventually(lambda: len(share_group.settled()) == 150, lambda: len(share_group.settled()))
    share_group.check()


def test_churn(broker: BrokerProcess, share_group: ShareGroup) -> None:
    """Members come, go and are killed, the broker too, while records come in."""
    chance = random.Random(6)
    kinds = [("--work-ms", "5"), ("--work-ms", "100"), ("--explicit", "--work-ms", "30")]
    places: set[Place] = set()
    alive: list[Member] = []
    deadline = time.monotonic() + (60 if os.environ.get("ANABRANCH_SOAK") else 5)
    while time.monotonic() < deadline:
        while len(alive) < 3:
            alive.append(share_group.join(*chance.choice(kinds)))
        places |= produce(broker.bootstrap, "jobs", numbered(300), PARTITIONS)
        event = chance.random()
        if event < 0.3:
            alive.pop(chance.randrange(3)).kill()
        elif event < 0.4:
            alive.pop(chance.randrange(3)).leave()
        elif event < 0.5:
            broker.kill()
            broker.start()
        time.sleep(chance.random() / 2)
    share_group.finishes(places)
    for member in alive:
        member.leave()
    share_group.check()
