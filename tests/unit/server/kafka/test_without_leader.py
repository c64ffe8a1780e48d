"""Partitions whose leader resigned: the codes that clients get, and whom they are told to ask instead."""

from typing import Any

import pytest

from anabranch.base.ids import BrokerId, TopicName
from anabranch.groups import share_states_anywhere
from anabranch.groups.share_coordinator import NewStart
from anabranch.groups.share_state import ShareKey
from anabranch.meta.image import NO_BROKER
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import records
from tests.unit.server.kafka.sharing import ACCEPT, ShareMember, share
from tests.unit.server.kafka.whole_broker import WholeBroker

ME = BrokerId(1)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SHARE_STATES = "__share_group_state"


async def elect(broker: WholeBroker, leader: BrokerId, topic: str = "a", index: int = 0) -> None:
    controller = broker.services.cluster.controller
    await controller.elect_leader(TopicName.from_kafka(topic), index, leader, "a test says so")


@pytest.fixture
async def controlled(broker: WholeBroker) -> WholeBroker:
    await broker.services.cluster.controller.claim()
    await broker.create("a")
    broker.put("a", "x", "y")
    return broker


@pytest.fixture
async def leaderless(controlled: WholeBroker) -> WholeBroker:
    await elect(controlled, NO_BROKER)
    return controlled


async def produced(broker: WholeBroker, version: int = 9) -> Any:
    part = {"index": 0, "records": bytes(records("z"))}
    named = {"topic_id": broker.image.topics_by_kafka_name["a"].id} if version >= 13 else {"name": "a"}
    topic = named | {"partition_data": [part]}
    return await broker.ask(0, version, acks=-1, timeout=1000, topic_data=[topic])


async def fetched(broker: WholeBroker, version: int = 12, current: int = -1) -> Any:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": current}
    if version < 9:
        del part["current_leader_epoch"]
    named = {"topic_id": broker.image.topics_by_kafka_name["a"].id} if version >= 13 else {"topic": "a"}
    topic = named | {"partitions": [part]}
    return await broker.ask(1, version, max_wait=0, min_bytes=0, max_bytes=1000, topics=[topic])


def told(answer: Any, part: Any) -> tuple[int, int, list[tuple[int, str, int]]]:
    nodes = [(one.node_id, one.host, one.port) for one in answer.node_endpoints]
    return part.current_leader.leader_id, part.current_leader.leader_epoch, nodes


async def test_produce(leaderless: WholeBroker) -> None:
    answer = await produced(leaderless)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.not_leader_or_follower
    await elect(leaderless, ME)
    assert leaderless.put("a", "z") == 2


@pytest.mark.parametrize("version", [10, 12, 13])
async def test_produce_tells_the_current_leader(leaderless: WholeBroker, version: int) -> None:
    answer = await produced(leaderless, version)
    assert told(answer, answer.responses[0].partition_responses[0]) == (-1, 1, [])


@pytest.mark.parametrize("version", [4, 10])
async def test_fetch(leaderless: WholeBroker, version: int) -> None:
    answer = await fetched(leaderless, version)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("version", [11, 12, 15])
async def test_fetch_from_who_is_no_leader(leaderless: WholeBroker, version: int) -> None:
    answer = await fetched(leaderless, version)
    (part,) = answer.responses[0].partitions
    assert (part.error_code, part.high_watermark) == (ErrorCode.none, 2)
    assert part.records


async def test_fetch_tells_the_current_leader(leaderless: WholeBroker) -> None:
    answer = await fetched(leaderless, 17, current=0)
    assert told(answer, answer.responses[0].partitions[0]) == (-1, 1, [])
    await elect(leaderless, ME)
    answer = await fetched(leaderless, 17, current=1)
    (part,) = answer.responses[0].partitions
    me = leaderless.image.brokers[ME]
    assert part.error_code == ErrorCode.fenced_leader_epoch
    assert told(answer, part) == (1, 2, [(1, me.host, me.port)])
    answer = await fetched(leaderless, 17, current=3)
    (part,) = answer.responses[0].partitions
    assert part.error_code == ErrorCode.unknown_leader_epoch
    assert told(answer, part) == (-1, -1, [])
    answer = await fetched(leaderless, 17, current=2)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.none


async def test_other_requests(leaderless: WholeBroker) -> None:
    part: dict[str, Any] = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    answer = await leaderless.ask(2, 6, replica_id=-1, topics=[{"name": "a", "partitions": [part]}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.not_leader_or_follower
    part = {"partition_index": 0, "offset": 1}
    answer = await leaderless.ask(21, 2, timeout=1000, topics=[{"name": "a", "partitions": [part]}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.not_leader_or_follower
    part = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}
    answer = await leaderless.ask(23, 4, replica_id=-1, topics=[{"topic": "a", "partitions": [part]}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.not_leader_or_follower


@pytest.mark.parametrize(
    ("current", "code"), [(1, "fenced_leader_epoch"), (2, "none"), (3, "unknown_leader_epoch")]
)
async def test_epochs_that_clients_know(leaderless: WholeBroker, current: int, code: str) -> None:
    await elect(leaderless, ME)
    part: dict[str, Any] = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": current}
    answer = await leaderless.ask(2, 6, replica_id=-1, topics=[{"name": "a", "partitions": [part]}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode[code]
    part = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": current}
    answer = await leaderless.ask(23, 4, replica_id=-1, topics=[{"topic": "a", "partitions": [part]}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode[code]


async def test_metadata(leaderless: WholeBroker) -> None:
    answer = await leaderless.ask(3, 12, topics=[{"name": "a"}])
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.leader_id, part.leader_epoch) == (ErrorCode.leader_not_available, -1, 1)
    described = await leaderless.ask(75, 0, topics=[{"name": "a"}], response_partition_limit=10)
    (part,) = described.topics[0].partitions
    assert (part.error_code, part.leader_id, part.leader_epoch) == (ErrorCode.none, -1, 1)
    await elect(leaderless, ME)
    answer = await leaderless.ask(3, 12, topics=[{"name": "a"}])
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.leader_id, part.leader_epoch) == (ErrorCode.none, 1, 2)


async def coordinator(broker: WholeBroker, key: str, key_type: int) -> ErrorCode:
    answer = await broker.ask(10, 4, key_type=key_type, coordinator_keys=[key])
    return ErrorCode(answer.coordinators[0].error_code)


RETRIABLE = {
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
}


async def test_a_group_whose_coordinator_resigned(controlled: WholeBroker) -> None:
    assert await coordinator(controlled, "g", 0) == ErrorCode.none
    shard = controlled.services.groups.shard_of("g")
    await elect(controlled, NO_BROKER, OFFSETS, shard)
    assert await coordinator(controlled, "g", 0) == ErrorCode.coordinator_not_available
    topics = [{"name": "a", "partition_indexes": [0]}]
    groups = [{"group_id": "g", "topics": topics}]
    answer = await controlled.ask(9, 8, groups=groups, require_stable=False)
    assert answer.groups[0].error_code in RETRIABLE
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    answer = await controlled.ask(8, 8, group_id="g", topics=[{"name": "a", "partitions": [part]}])
    assert answer.topics[0].partitions[0].error_code in RETRIABLE
    answer = await controlled.ask(12, 4, group_id="g", generation_id=1, member_id="m")
    assert answer.error_code in RETRIABLE
    answer = await controlled.ask(14, 4, group_id="g", generation_id=1, member_id="m")
    assert answer.error_code in RETRIABLE
    member = {"group_id": "g", "member_id": "m", "member_epoch": 0}
    for heartbeat in (68, 76):
        topics_of = {"subscribed_topic_names": ["a"]}
        answer = await controlled.ask(heartbeat, 1, **member, **topics_of)
        assert answer.error_code in RETRIABLE
    for describe in (69, 77):
        answer = await controlled.ask(describe, 1, group_ids=["g"])
        assert answer.groups[0].error_code in RETRIABLE
    assert (await controlled.ask(15, 5, groups=["g"])).groups[0].error_code in RETRIABLE
    assert (await controlled.ask(42, 2, groups_names=["g"])).results[0].error_code in RETRIABLE
    assert (await controlled.ask(13, 4, group_id="g", members=[{"member_id": "m"}])).error_code in RETRIABLE
    partitions = [{"partition_index": 0}]
    forgotten = await controlled.ask(47, 0, group_id="g", topics=[{"name": "a", "partitions": partitions}])
    assert forgotten.error_code in RETRIABLE
    pending: dict[str, Any] = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    for version in range(6):
        topic = {"name": "a", "partitions": [part]}
        answer = await controlled.ask(28, version, group_id="g", **pending, topics=[topic])
        assert answer.topics[0].partitions[0].error_code in RETRIABLE
    joining = {"session_timeout": 6000, "rebalance_timeout": 6000, "protocol_type": "consumer"}
    answer = await controlled.ask(11, 5, group_id="g", member_id="m", **joining)
    assert answer.error_code in RETRIABLE
    assert answer.member_id == ""
    await elect(controlled, ME, OFFSETS, shard)
    assert await coordinator(controlled, "g", 0) == ErrorCode.none
    answer = await controlled.ask(8, 8, group_id="g", topics=[{"name": "a", "partitions": [part]}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.none


async def test_a_transaction_whose_coordinator_resigned(controlled: WholeBroker) -> None:
    assert await coordinator(controlled, "t", 1) == ErrorCode.none
    asked: dict[str, Any] = {"transactional_id": "t", "transaction_timeout": 1000}
    known = await controlled.ask(22, 4, **asked)
    assert known.error_code == ErrorCode.none
    shard = controlled.services.transactions.shard_of("t")
    await elect(controlled, NO_BROKER, TRANSACTIONS, shard)
    assert await coordinator(controlled, "t", 1) == ErrorCode.coordinator_not_available
    assert (await controlled.ask(22, 4, **asked)).error_code in RETRIABLE
    producer = {"producer_id": known.producer_id, "producer_epoch": known.producer_epoch}
    asked = {"v3_and_below_transactional_id": "t", "v3_and_below_topics": [{"name": "a", "partitions": [0]}]}
    added = await controlled.ask(
        24,
        3,
        v3_and_below_producer_id=known.producer_id,
        v3_and_below_producer_epoch=known.producer_epoch,
        **asked,
    )
    (result,) = added.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code in RETRIABLE
    ended = await controlled.ask(26, 3, transactional_id="t", committed=True, **producer)
    assert ended.error_code in RETRIABLE


async def test_a_share_group(controlled: WholeBroker) -> None:
    member = ShareMember(controlled, await share(controlled, "g", "a", 0), "m")
    assert await member.take() == [(0, 1, 1)]
    await elect(controlled, NO_BROKER)
    answer = await member.fetch()
    (part,) = answer.responses[0].partitions
    assert part.error_code == ErrorCode.not_leader_or_follower
    assert told(answer, part) == (-1, 1, [])
    assert await member.acknowledge((0, 0, ACCEPT)) == "not_leader_or_follower"
    await elect(controlled, ME)
    assert await member.take(max_wait=500) == [(0, 1, 1)]  # who has which records is not kept
    assert await member.acknowledge((0, 1, ACCEPT)) == "none"


async def test_a_share_group_whose_state_is_away(
    controlled: WholeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_states_anywhere, "_PATIENCE_S", 0.3)
    topic_id = await share(controlled, "g", "a", 0)
    member = ShareMember(controlled, topic_id, "m")
    assert await member.take() == [(0, 1, 1)]
    states = controlled.services.share_groups.states
    shard = states.shard_of(ShareKey("g", topic_id, 0))
    await elect(controlled, NO_BROKER, SHARE_STATES, shard)
    assert ErrorCode[await member.acknowledge((0, 0, ACCEPT))] in RETRIABLE
    await elect(controlled, ME, SHARE_STATES, shard)
    assert await member.acknowledge((1, 1, ACCEPT)) == "none"


async def test_a_share_group_is_deleted_once_its_state_is_back(
    controlled: WholeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_states_anywhere, "_PATIENCE_S", 0.3)
    coordinator, topic_id = controlled.services.share_groups, controlled.image.topics_by_kafka_name["a"].id
    await coordinator.alter("g", {topic_id: NewStart("a", {0: 1})})
    shard = coordinator.states.shard_of(ShareKey("g", topic_id, 0))
    await elect(controlled, NO_BROKER, SHARE_STATES, shard)
    assert (await controlled.ask(42, 2, groups_names=["g"])).results[0].error_code in RETRIABLE
    await elect(controlled, ME, SHARE_STATES, shard)
    assert (await controlled.ask(42, 2, groups_names=["g"])).results[0].error_code == ErrorCode.none
    assert await coordinator.states.look(ShareKey("g", topic_id, 0)) is None
