"""ConsumerGroupHeartbeat over its bytes; what is decided is tested in tests/unit/groups/test_consumer*.py."""

import time
from uuid import UUID

import pytest

from anabranch.wire.kafka.schema import ErrorCode
from tests.unit.server.kafka.whole_broker import open_broker

HEARTBEAT = 68


def joining(**asked):
    return {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
        **asked,
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_lives_and_leaves(broker, version):
    topic = await broker.create("orders", 3)
    joined = await broker.ask(HEARTBEAT, version, **joining())
    assert joined.error_code == ErrorCode.none
    assert (joined.member_id, joined.member_epoch) == ("m", 2)
    (given,) = joined.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (topic.id, (0, 1, 2))
    assert joined.heartbeat_interval.total_seconds() == 0.5
    alive = await broker.ask(
        HEARTBEAT,
        version,
        group_id="g",
        member_id="m",
        member_epoch=2,
        topic_partitions=[{"topic_id": topic.id, "partitions": [0, 1, 2]}],
    )
    assert alive.error_code == ErrorCode.none
    assert alive.assignment is None
    left = await broker.ask(
        HEARTBEAT, version, group_id="g", member_id="m", member_epoch=-1, topic_partitions=None
    )
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)


async def test_topics_by_expression(broker):
    await broker.create("orders", 3)
    await broker.create("bills", 2)
    asked = joining(subscribed_topic_names=None, subscribed_topic_regex="(orders|bills)")
    joined = await broker.ask(HEARTBEAT, 1, **asked)
    assert sum(len(topic.partitions) for topic in joined.assignment.topic_partitions) == 5


async def test_older_clients_are_given_an_id_and_newer_ones_bring_theirs(broker):
    joined = await broker.ask(HEARTBEAT, 0, **joining(member_id=""))
    assert len(joined.member_id) == 22
    refused = await broker.ask(HEARTBEAT, 1, **joining(member_id=""))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.invalid_request,
        "MemberId can't be empty.",
    )
    assert (refused.member_id, refused.member_epoch, refused.assignment) == (None, 0, None)


async def test_a_group_is_as_it_was_after_a_restart(tmp_path):
    async with open_broker(tmp_path / "data") as broker:
        await broker.create("orders", 3)
        await broker.ask(HEARTBEAT, 1, **joining())
    async with open_broker(tmp_path / "data") as broker:
        await broker.services.groups.load()
        alive = await broker.ask(
            HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=2, topic_partitions=None
        )
        assert (alive.error_code, alive.member_epoch) == (ErrorCode.none, 2)
        stranger = await broker.ask(
            HEARTBEAT, 1, group_id="g", member_id="x", member_epoch=2, topic_partitions=None
        )
        assert stranger.error_code == ErrorCode.unknown_member_id


async def test_a_topic_that_is_owned_again_and_again_holds_nobody_up(broker):
    async def took(topic_ids):
        owned = [{"topic_id": id, "partitions": [i]} for i, id in enumerate(topic_ids)]
        began = time.process_time()
        answer = await broker.ask(HEARTBEAT, 1, **joining(topic_partitions=owned))
        assert answer.error_code == ErrorCode.invalid_request
        return time.process_time() - began

    many = [UUID(int=i) for i in range(1, 24_001)]
    one, each = [], []
    for _ in range(4):  # the first of them pays for what is made once
        one.append(await took(many[:1] * len(many)))
        each.append(await took(many))
    assert min(one) < 2 * min(each), "and not its square"
