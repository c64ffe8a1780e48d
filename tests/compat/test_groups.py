"""Groups of real clients, one process per member: one after the other, what happens to members and broker.

Whatever it is: every record that was acknowledged is processed at least once, in the end each partition has
one owner among the living, and a group goes on where it had committed.  All at random is `test_group_churn`.
"""

import os
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.group_history import judge
from tests.compat.group_processes import (
    ALL,
    KINDS,
    PARTITIONS,
    PATIENCE_S,
    SETTINGS,
    Group,
    Member,
    Read,
    acknowledged,
    committed,
    create,
    eventually,
    log_ends,
    start_producer,
)
from tests.support.broker import BrokerProcess
from tests.support.stalls import Stalls

pytestmark = pytest.mark.timeout(900)

OwnBroker = Callable[..., BrokerProcess]
GroupOf = Callable[..., Group]

COME_AND_GO = (
    tuple(KINDS)
    if os.environ.get("ANABRANCH_SOAK")
    else ("confluent-consumer", "confluent-cooperative", "kafka-python-cooperative")
)
"""Half a minute each.  The other kinds are in `test_group_churn` and below; the soak has all of them here."""


@pytest.mark.parametrize("kind", COME_AND_GO)
def test_members_come_and_go(kind: str, own_broker: OwnBroker, group_of: GroupOf, tmp_path: Path) -> None:
    broker = own_broker(SETTINGS)
    create(broker)
    group = group_of(broker, *KINDS[kind])
    producer = start_producer(broker, tmp_path / "ledger")
    try:
        lasting = group.join()
        group.settles(lasting)
        leaving, dying = group.join(), group.join()
        group.settles(lasting, leaving, dying)
        leaving.leave()
        group.settles(lasting, dying)
        dying.kill()
        group.settles(lasting)
        frozen = group.join()
        group.settles(lasting, frozen)
        frozen.freeze()
        group.settles(lasting)
        frozen.thaw()
        group.settles(lasting, frozen)
        broker.kill()
        broker.start()
        producer.terminate()
        assert producer.wait(PATIENCE_S) == 0
    finally:
        producer.kill()
        producer.wait()
    ends = log_ends(broker)
    wanted = {Read(partition, offset) for partition, end in ends.items() for offset in range(end)}
    assert acknowledged(tmp_path / "ledger") <= wanted
    eventually(lambda: wanted <= group.processed(), lambda: sorted(wanted - group.processed())[:10])
    group.settles(lasting, frozen)
    eventually(lambda: committed(broker) == ends, lambda: (committed(broker), ends))
    lasting.leave()
    frozen.leave()
    _goes_on_where_it_was(broker, group, ends)


def _goes_on_where_it_was(broker: BrokerProcess, group: Group, ends: dict[int, int]) -> None:
    """Nobody reads now.  Another start of the broker, another member: it begins at what was committed."""
    broker.stop()
    broker.start()
    assert committed(broker) == ends
    late = group.join()
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for partition in ALL:
        producer.produce("orders", b"late", partition=partition)
    assert producer.flush(60) == 0
    group.settles(late)
    eventually(lambda: len(late.reads()) >= PARTITIONS, late.lines)
    assert set(late.reads()) == {Read(partition, ends[partition]) for partition in ALL}


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("confluent", Member.leave),
        ("confluent", Member.kill),
        ("confluent-consumer", Member.leave),
        ("kafka-python", Member.kill),
        ("aiokafka", Member.kill),
    ],
)
def test_a_static_member_restarts_unnoticed(
    kind: str, end: Callable[[Member], None], own_broker: OwnBroker, group_of: GroupOf
) -> None:
    broker = own_broker(SETTINGS | {"group.consumer.session.timeout.ms": "20000"})
    create(broker)
    group = group_of(broker, *KINDS[kind], "--session-ms", "20000")
    lasting, restarted = group.join("--instance", "one"), group.join("--instance", "two")
    group.settles(lasting, restarted)
    before = len(lasting.ownerships()), restarted.owns()
    end(restarted)
    again = group.join("--instance", "two")
    group.settles(lasting, again)
    assert (len(lasting.ownerships()), again.owns()) == before


def test_a_static_member_of_the_new_protocol_that_was_killed_has_its_place_when_its_session_ends(
    own_broker: OwnBroker, group_of: GroupOf
) -> None:
    """Until then its successor is refused (UNRELEASED_INSTANCE_ID), for the other might be alive."""
    # Long enough for the successor, which is a process, to ask before it is over.
    broker = own_broker(SETTINGS | {"group.consumer.session.timeout.ms": "12000"})
    create(broker)
    group = group_of(broker, *KINDS["confluent-consumer"])
    lasting, killed = group.join("--instance", "one"), group.join("--instance", "two")
    group.settles(lasting, killed)
    killed.kill()
    successor = group.join("--instance", "two")
    group.settles(lasting, successor)
    refusals = [line for line in successor.lines() if line.split()[1] == "anew"]
    assert refusals
    assert all("instance ID is still used" in line for line in refusals)
    assert not judge(group.members)


def test_a_rebalance_does_not_delay_a_stop(own_broker: OwnBroker, group_of: GroupOf) -> None:
    broker = own_broker(SETTINGS)
    create(broker)
    group = group_of(broker, *KINDS["confluent"], "--session-ms", "60000")
    frozen = group.join()
    group.settles(frozen)
    frozen.freeze()  # the rebalance would wait for it, for a minute
    group.join()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def state() -> ck.ConsumerGroupState:
        return admin.describe_consumer_groups(["readers"])["readers"].result(60).state

    eventually(lambda: state() is ck.ConsumerGroupState.PREPARING_REBALANCING, state)
    with Stalls() as stalls:
        assert broker.stop() < 3 + stalls.lost_s
