"""Waits for acknowledgements: those of a connection overlap, answers keep the order, each has a deadline."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.errors import NotOwner
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.server import slots
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.acknowledgements import Follower
from tests.support.logs import records
from tests.support.waiting import until
from tests.unit.server.kafka.connected import Connected
from tests.unit.server.kafka.transacting import Client
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker

PRODUCE, METADATA, COMMIT, FETCH_OFFSETS, FIND = 0, 3, 8, 9, 10
JOIN, LEAVE, DELETE_OFFSETS = 11, 13, 47
ADD, ADD_OFFSETS, END, MARKERS, TXN_COMMIT, HEARTBEAT = 24, 25, 26, 27, 28, 68
IN_FLIGHT = 5
_SHORT_MS = 20
_LONG_MS = 3_600_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    async with open_broker(tmp_path, **{"offsets.topic.num.partitions": "1"}) as broker:
        await broker.create("orders", IN_FLIGHT)
        yield broker


@pytest.fixture
async def held(broker: WholeBroker) -> Follower:
    """What is appended from now on; the topics of coordinators are there already, and open."""
    held = Follower(broker.services.partitions)
    held.is_holding = False
    await broker.services.groups.ensure_topic()
    await broker.services.transactions.ensure_topic()
    await broker.services.groups.look("g")
    held.is_holding = True
    return held


def batch(*values: str) -> bytes:
    return bytes(records(*values or ("a",)))


def produce(
    client: Connected, *indexes: int, acks: int = -1, timeout_ms: int = _LONG_MS, records: bytes = b""
) -> int:
    parts = [{"index": index, "records": records or batch()} for index in indexes or (0,)]
    topic = {"name": "orders", "partition_data": parts}
    return client.send(PRODUCE, 9, acks=acks, timeout=timeout_ms, topic_data=[topic])


def _a_batch_for(topic: str) -> dict[str, Any]:
    return {"name": topic, "partition_data": [{"index": 0, "records": batch()}]}


def commit(client: Connected, offset: int, group_id: str = "g") -> int:
    part = {"partition_index": 0, "committed_offset": offset}
    return client.send(COMMIT, 8, group_id=group_id, topics=[{"name": "orders", "partitions": [part]}])


def produced(answer: Any) -> list[tuple[int, int, int]]:
    """(partition, code, base offset) of all."""
    return [
        (part.index, part.error_code, part.base_offset)
        for topic in answer.responses
        for part in topic.partition_responses
    ]


def committed(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- overlapping, and in order


async def test_requests_in_flight_are_appended_before_the_first_is_acknowledged(
    broker: WholeBroker, held: Follower
) -> None:
    client = Connected(broker)
    sent = [produce(client, number % IN_FLIGHT) for number in range(2 * IN_FLIGHT)]
    assert len(held.waiting) == 2 * IN_FLIGHT
    assert not client.tasks
    for index in reversed(range(IN_FLIGHT)):
        assert client.answered() == []
        held.release(partition=broker.partition("orders", index))
        await turns()
    answers = client.answered()
    assert [id for id, _ in answers] == sent
    assert [produced(answer) for _, answer in answers] == [
        [(number % IN_FLIGHT, 0, number // IN_FLIGHT)] for number in range(2 * IN_FLIGHT)
    ]


async def test_requests_for_one_partition_are_answered_as_far_as_it_is_safe(
    broker: WholeBroker, held: Follower
) -> None:
    client = Connected(broker)
    sent = [produce(client) for _ in range(IN_FLIGHT)]
    for number, id in enumerate(sent):
        held.release(1)
        await turns()
        ((answered, answer),) = client.answered()
        assert (answered, produced(answer)) == (id, [(0, 0, number)])
        assert broker.partition("orders").high_watermark == number + 1


@pytest.mark.parametrize("ask", [produce, lambda client: commit(client, 1)], ids=["produce", "commit"])
async def test_five_in_flight_are_five_times_as_fast_as_one(
    broker: WholeBroker, held: Follower, ask: Any
) -> None:
    """Acknowledgements take a round each, however many are on their way."""
    rounds = {}
    for in_flight in (1, IN_FLIGHT):
        client = Connected(broker)
        left, answered, count = 100, 0, 0
        for _ in range(in_flight):
            ask(client)
        while answered < 100:
            held.release()
            await turns(4)
            count += 1
            for _ in client.answered():
                answered += 1
                left -= 1
                if left >= in_flight:
                    ask(client)
        rounds[in_flight] = count
    assert rounds == {1: 100, IN_FLIGHT: 100 // IN_FLIGHT}


async def test_different_requests_overlap(broker: WholeBroker, held: Follower) -> None:
    client = Connected(broker)
    sent = [produce(client), commit(client, 3), produce(client), commit(client, 5), client.send(METADATA, 9)]
    await until(lambda: not client.tasks)
    assert len(held.waiting) == 4
    assert client.answered() == []
    held.release()
    await turns()
    answers = client.answered()
    assert [id for id, _ in answers] == sent
    assert [committed(answers[i][1]) for i in (1, 3)] == [0, 0]


async def test_a_batch_that_is_prepared_in_a_thread_keeps_the_order_and_waits_with_the_others(
    broker: WholeBroker, held: Follower
) -> None:
    await broker.create("packed", compression_type="gzip")
    client = Connected(broker)
    heavy = {"index": 0, "records": batch("x" * 200_000)}
    light = {"index": 0, "records": batch("y")}
    for part in (heavy, light, heavy):
        client.send(
            PRODUCE, 9, acks=-1, timeout=_LONG_MS, topic_data=[{"name": "packed", "partition_data": [part]}]
        )
    await until(lambda: len(held.waiting) == 3)
    held.release()
    await turns()
    assert [produced(answer) for _, answer in client.answered()] == [[(0, 0, 0)], [(0, 0, 1)], [(0, 0, 2)]]


COORDINATED: dict[str, tuple[int, int, dict[str, Any]]] = {
    "JoinGroup": (
        JOIN,
        3,
        {
            "group_id": "joined",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    "ConsumerGroupHeartbeat": (
        HEARTBEAT,
        1,
        {
            "group_id": "new",
            "member_id": "m",
            "subscribed_topic_names": ["orders"],
            "rebalance_timeout": 10_000,
            "topic_partitions": [],
        },
    ),
    "OffsetDelete": (
        DELETE_OFFSETS,
        0,
        {"group_id": "g", "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]},
    ),
    "OffsetCommit": (
        COMMIT,
        8,
        {
            "group_id": "g",
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
        },
    ),
    "WriteTxnMarkers": (
        MARKERS,
        1,
        {
            "markers": [
                {
                    "producer_id": 7,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("name", COORDINATED)
async def test_requests_to_coordinators_hold_up_nobody(
    broker: WholeBroker, held: Follower, name: str
) -> None:
    held.is_holding = False
    client = Connected(broker)
    commit(client, 1)
    await client.only_answer()
    held.is_holding = True
    key, version, values = COORDINATED[name]
    first = client.send(key, version, **values)
    second = produce(client)
    await until(lambda: len(client.connection._slots) == 2 and broker.partition("orders").log_end)
    assert not client.link.paused
    assert client.answered() == []
    held.is_holding = False
    held.release()
    if name == "JoinGroup":  # which waits for other members, too
        broker.services.groups.let_go()
    await until(lambda: client.connection.is_idle)
    assert [id for id, _ in client.answered()] == [first, second]


async def test_a_transaction_waits_beside_others(broker: WholeBroker, held: Follower) -> None:
    held.is_holding = False
    transacting = await Client.introduced(broker, "copy")
    held.is_holding = True
    client = Connected(broker)
    who = {"producer_id": transacting.producer_id, "producer_epoch": transacting.epoch}
    old = {f"v3_and_below_{name}": value for name, value in who.items()}
    client.send(
        ADD,
        3,
        v3_and_below_transactional_id="copy",
        v3_and_below_topics=[{"name": "orders", "partitions": [0]}],
        **old,
    )
    client.send(ADD_OFFSETS, 3, transactional_id="copy", group_id="g", **who)
    client.send(END, 3, transactional_id="copy", committed=True, **who)
    await until(lambda: len(held.waiting) == 3)
    assert not client.link.paused
    held.is_holding = False
    held.release()
    answers: list[tuple[int, Any]] = []
    await until(lambda: answers.extend(client.answered()) or len(answers) == 3)
    assert [id for id, _ in answers] == [0, 1, 2]
    assert [answer.error_code for _, answer in answers[1:]] == [0, 0]


# --- limits


async def test_many_requests_in_flight_stop_the_reading(broker: WholeBroker, held: Follower) -> None:
    client = Connected(broker)
    while not client.link.paused:
        produce(client)
    assert len(held.waiting) == slots.MAX_SLOTS
    held.release(1)
    await turns()
    assert len(client.answered()) == 1
    assert not client.link.paused


async def test_what_requests_in_flight_keep_is_limited(
    broker: WholeBroker, held: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "MAX_BYTES", 1000)
    client = Connected(broker)
    while not client.link.paused:
        commit(client, 1)
    assert 5 < len(held.waiting) < 30
    while held.waiting:
        held.release()
        await turns()
    assert not client.link.paused


# --- time


async def test_what_is_not_acknowledged_in_time(broker: WholeBroker, held: Follower) -> None:
    """As Kafka answers: the offset that the batch has, and REQUEST_TIMED_OUT; it is not taken back."""
    client = Connected(broker)
    produce(client, 0, 1, timeout_ms=_SHORT_MS)
    held.release(1)
    answer = await client.only_answer()
    assert produced(answer) == [(0, 0, 0), (1, ErrorCode.request_timed_out, 0)]
    assert broker.partition("orders", 1).log_end == 1
    held.release()
    await turns()
    assert client.answered() == []
    produce(client, 1)
    held.release()
    assert produced(await client.only_answer()) == [(1, 0, 1)]


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_no_time_at_all(broker: WholeBroker, held: Follower, timeout_ms: int) -> None:
    client = Connected(broker)
    produce(client, timeout_ms=timeout_ms)
    assert produced(await client.only_answer()) == [(0, ErrorCode.request_timed_out, 0)]
    held.is_holding = False
    produce(client, timeout_ms=timeout_ms)
    assert produced(await client.only_answer()) == [(0, 0, 1)]


async def test_each_request_has_its_own_time(broker: WholeBroker, held: Follower) -> None:
    """The second is over first, and is told in its turn."""
    held.is_holding = False
    client = Connected(broker)
    for timeout_ms in (_LONG_MS, _SHORT_MS):  # from here on both are known by their first bytes
        produce(client, timeout_ms=timeout_ms)
        await client.only_answer()
    held.is_holding = True
    produce(client, timeout_ms=_LONG_MS)
    produce(client, timeout_ms=_SHORT_MS)
    await asyncio.sleep(2 * _SHORT_MS / 1000)
    assert client.answered() == []
    held.release(1)
    await until(lambda: len(client.link.chunks) == 2)
    codes = [produced(answer)[0][1] for _, answer in client.answered()]
    assert codes == [0, ErrorCode.request_timed_out]


@pytest.mark.parametrize("acks", [0, 1])
async def test_what_is_not_for_all_replicas_waits_for_none(
    broker: WholeBroker, held: Follower, acks: int
) -> None:
    client = Connected(broker)
    produce(client, acks=acks, timeout_ms=0)
    assert len(held.waiting) == 1
    assert [produced(answer) for _, answer in client.answered()] == [[(0, 0, 0)]] * acks
    assert client.connection.is_idle
    assert broker.partition("orders").high_watermark == 0


@pytest.mark.parametrize("acks", [0, 1])
async def test_what_is_not_for_all_replicas_has_no_time(
    broker: WholeBroker, held: Follower, acks: int
) -> None:
    """It waits for the disk, if it is to, however long that takes."""
    await broker.create("orders-synced", flush_messages="1")
    client = Connected(broker)
    synced = broker.partition("orders-synced").log
    client.send(PRODUCE, 9, acks=acks, timeout=0, topic_data=[_a_batch_for("orders-synced")])
    assert synced.recovery_point == 0
    assert client.answered() == []
    await until(lambda: client.connection.is_idle)
    assert [produced(answer) for _, answer in client.answered()] == [[(0, 0, 0)]] * acks
    assert synced.recovery_point == 1


async def test_a_partition_that_is_led_elsewhere_meanwhile(broker: WholeBroker, held: Follower) -> None:
    client = Connected(broker)
    produce(client, 0, 1)
    held.refuse(NotOwner("broker 2 leads it"), broker.partition("orders", 1))
    await turns()
    assert client.answered() == []
    held.release()
    assert produced(await client.only_answer()) == [(0, 0, 0), (1, ErrorCode.not_leader_or_follower, 0)]


async def test_a_request_without_an_answer_that_fails_closes_the_connection(
    broker: WholeBroker, held: Follower
) -> None:
    await broker.create("orders-synced", flush_messages="1")
    client = Connected(broker)
    client.send(PRODUCE, 9, acks=0, topic_data=[_a_batch_for("orders-synced")])
    await turns()
    assert not client.link.closed
    broker.services.partitions.flusher.forget(broker.partition("orders-synced").log)  # so it is not synced
    await turns()
    assert client.link.closed


# --- the end


async def test_a_client_that_leaves_is_forgotten(broker: WholeBroker, held: Follower) -> None:
    client = Connected(broker)
    produce(client)
    commit(client, 4)
    client.send(*COORDINATED["ConsumerGroupHeartbeat"][:2], **COORDINATED["ConsumerGroupHeartbeat"][2])
    await until(lambda: len(held.waiting) == 3)
    loop = asyncio.get_running_loop()
    assert any(not timer.cancelled() and timer.when() > loop.time() + 600 for timer in loop._scheduled)  # type: ignore[attr-defined]
    client.connection.closed()
    await turns()
    assert not client.tasks
    assert all(timer.cancelled() or timer.when() < loop.time() + 600 for timer in loop._scheduled)  # type: ignore[attr-defined]
    held.release()
    await turns()
    assert client.link.sent == b""
    answer = await broker.ask(FETCH_OFFSETS, 8, groups=[{"group_id": "g", "topics": None}])
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 4


async def test_a_node_that_stops_waits_for_what_is_on_its_way(broker: WholeBroker, held: Follower) -> None:
    client = Connected(broker)
    produce(client)
    commit(client, 4)
    client.connection.quiesce()
    await turns()
    assert client.answered() == []
    assert not client.connection.is_idle
    held.release()
    await turns()
    assert len(client.answered()) == 2
    assert client.connection.is_idle


# --- coordinators


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[WholeBroker]:
    settings = {"offsets.commit.timeout.ms": str(_SHORT_MS), "offsets.topic.num.partitions": "1"}
    async with open_broker(tmp_path / "impatient", **settings) as broker:
        await broker.create("orders", 2)
        yield broker


async def test_a_commit_that_is_not_acknowledged_in_time(impatient: WholeBroker) -> None:
    """The client asks again, whatever has become of it; it counts."""
    await impatient.services.groups.ensure_topic()
    held = Follower(impatient.services.partitions)
    client = Connected(impatient)
    commit(client, 4)
    assert committed(await client.only_answer()) == ErrorCode.coordinator_not_available
    held.release()
    await turns()
    assert client.answered() == []
    answer = await impatient.ask(FETCH_OFFSETS, 8, groups=[{"group_id": "g", "topics": None}])
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 4
    held.is_holding = False
    commit(client, 5)
    assert committed(await client.only_answer()) == 0


async def test_a_member_whose_group_is_not_acknowledged_in_time(impatient: WholeBroker) -> None:
    """It is a member all the same, and joins again as the one it is."""
    await impatient.services.groups.ensure_topic()
    held = Follower(impatient.services.partitions)
    client = Connected(impatient)
    key, version, values = COORDINATED["ConsumerGroupHeartbeat"]
    client.send(key, version, **values)
    assert (await client.only_answer()).error_code == ErrorCode.coordinator_not_available
    held.is_holding = False
    held.release()
    client.send(key, version, **values)
    answer = await client.only_answer()
    assert (answer.error_code, answer.member_epoch > 0) == (0, True)


async def test_an_end_that_is_not_acknowledged_in_time(broker: WholeBroker, held: Follower) -> None:
    """No partition hears of it before it is; then a retry finds it done."""
    held.is_holding = False
    transacting = Client(broker, "copy")
    assert await transacting.introduce(transaction_timeout=_SHORT_MS) == 0
    await transacting.add(("orders", 0))
    assert await transacting.produce("orders", "a") == 0
    held.is_holding = True
    assert await transacting.end(commit=True) == ErrorCode.coordinator_not_available
    coordinator = broker.services.transactions
    shard = coordinator.shard_of("copy")
    ((prepared, end),) = held.waiting
    retried = asyncio.ensure_future(transacting.end(commit=True))
    await turns()
    assert broker.partition("orders").log_end == 1, "there is a marker, and its reason may be lost"
    held.is_holding = False
    held.release()
    assert await retried in (0, ErrorCode.concurrent_transactions)
    assert prepared.high_watermark >= end
    assert await transacting.end(commit=True) == 0
    assert broker.partition("orders").log_end == 2
    assert broker.partition(STATE_TOPIC, shard).log_end > 0
    assert broker.partition(OFFSETS_TOPIC).log_end == 0


async def test_a_client_that_leaves_while_its_end_waits(broker: WholeBroker, held: Follower) -> None:
    """The transaction ends all the same, as soon as its end is acknowledged."""
    held.is_holding = False
    transacting = await Client.introduced(broker, "copy")
    await transacting.add(("orders", 0))
    assert await transacting.produce("orders", "a") == 0
    coordinator = broker.services.transactions
    running = asyncio.ensure_future(coordinator.run())
    await coordinator.loaded()
    held.is_holding = True
    client = Connected(broker)
    who = {"producer_id": transacting.producer_id, "producer_epoch": transacting.epoch}
    client.send(END, 3, transactional_id="copy", committed=True, **who)
    await until(lambda: held.waiting)
    await turns()
    client.connection.closed()
    await turns()
    assert not client.tasks
    assert broker.partition("orders").log_end == 1
    held.is_holding = False
    held.release()
    await until(lambda: broker.partition("orders").log_end == 2)
    running.cancel()
    await asyncio.wait((running,))
