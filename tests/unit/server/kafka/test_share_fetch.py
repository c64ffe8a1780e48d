"""ShareFetch and ShareAcknowledge: sessions, records and who has them, waiting, and what survives."""

import asyncio

import pytest

from anabranch.groups.share_state import DeliveryState, ShareKey, StateBatch
from anabranch.records.batch import split_batches
from anabranch.records.control import Marker
from tests.support.logs import records
from tests.unit.server.kafka.sharing import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    share,
)
from tests.unit.server.kafka.whole_broker import WholeBroker


async def two(broker: WholeBroker, *batches: int, **config: str) -> tuple[ShareMember, ShareMember]:
    """Members of a group that reads a topic with so many records in each batch."""
    await broker.create("t", **config)
    for count in batches:
        broker.put("t", *"x" * count)
    id = await share(broker, "g", "t", 0)
    return ShareMember(broker, id, "a"), ShareMember(broker, id, "b")


@pytest.mark.parametrize("version", [1, 2])
async def test_records_go_to_one_member_each(broker: WholeBroker, version: int) -> None:
    a, b = await two(broker, 3, 2)
    answer = await a.fetch(version=version, max_records=3)
    (part,) = answer.responses[0].partitions
    assert [(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records] == [
        (0, 2, 1)
    ]
    assert [header.base_offset for header, _ in split_batches(part.records)] == [0]
    assert answer.acquisition_lock_timeout.total_seconds() == 30
    assert await b.take(version=version) == [(3, 4, 1)]
    assert await b.take(version=version) == []
    assert await a.take((0, 2, ACCEPT), version=version) == []
    assert await a.acknowledge((0, 2, ACCEPT), version=version) == "none"  # below start: settled long ago


async def test_what_is_released_comes_again_and_counts(broker: WholeBroker) -> None:
    a, b = await two(broker, 4)
    assert await a.take() == [(0, 3, 1)]
    assert await a.take((0, 3, ACCEPT, RELEASE, REJECT, GAP)) == [(1, 1, 2)]
    assert await b.take() == []
    assert await b.acknowledge((1, 1, ACCEPT)) == "invalid_record_state"
    assert await a.acknowledge((1, 1, ACCEPT)) == "none"
    assert await a.acknowledge((1, 1, ACCEPT)) == "none"


async def test_acknowledgements_are_checked(broker: WholeBroker) -> None:
    a, _ = await two(broker, 4)
    await a.take()
    assert await a.acknowledge((0, 9, ACCEPT)) == "invalid_request"
    assert await a.acknowledge((0, 1, ACCEPT, ACCEPT, ACCEPT)) == "invalid_request"
    assert await a.acknowledge((2, 3, ACCEPT), (0, 1, ACCEPT)) == "invalid_request"
    assert await a.acknowledge((0, 1, 7)) == "invalid_request"
    assert await a.acknowledge((0, 1)) == "invalid_request"
    assert await a.acknowledge((0, 1, RENEW)) == "invalid_request"
    assert await a.acknowledge((0, 1, RENEW), is_renew_ack=True) == "none"
    assert await a.acknowledge((0, 3, ACCEPT)) == "none"


async def test_sessions(broker: WholeBroker) -> None:
    a, b = await two(broker, 4)
    assert (await a.fetch(epoch=3)).error_code.name == "share_session_not_found"
    assert await a.acknowledge((0, 0, ACCEPT), epoch=1) == "share_session_not_found"
    assert await a.take() == [(0, 3, 1)]
    assert (await a.fetch(epoch=3)).error_code.name == "invalid_share_session_epoch"
    assert await a.acknowledge((0, 0, ACCEPT), epoch=0) == "invalid_share_session_epoch"
    assert (await a.fetch((0, 0, ACCEPT), epoch=0)).error_code.name == "invalid_request"
    answer = await a.fetch((0, 0, ACCEPT), epoch=-1)
    assert answer.error_code.name == "none"
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0
    assert await b.take() == [(1, 3, 2)]
    assert (await a.fetch(epoch=2)).error_code.name == "share_session_not_found"


async def test_a_connection_that_ends_gives_back_what_its_members_have(broker: WholeBroker) -> None:
    a, b = await two(broker, 4)
    assert await a.take() == [(0, 3, 1)]
    broker.services.share_sessions.disconnected(a.connection_id)
    assert await b.take(max_wait=5_000) == [(0, 3, 2)]
    assert len(broker.services.share_sessions) == 1


async def test_a_fetch_of_a_session_that_was_begun_anew_takes_nothing(broker: WholeBroker) -> None:
    a, _ = await two(broker)
    waiting = asyncio.create_task(a.take(max_wait=10_000))
    await asyncio.sleep(0.02)
    again = ShareMember(broker, a.topic_id, "a")
    again.connection_id = a.connection_id + 1
    assert await again.take() == []
    broker.put("t", "x")
    assert await waiting == []
    assert await again.take() == [(0, 0, 1)]


async def test_there_are_so_many_sessions(broker: WholeBroker) -> None:
    a, b = await two(broker, 4)
    broker.services.share_sessions._most = lambda: 1
    assert await a.take()
    assert (await b.fetch()).error_code.name == "share_session_limit_reached"


async def test_a_fetch_waits_for_records(broker: WholeBroker) -> None:
    a, b = await two(broker)
    waiting = [asyncio.create_task(member.take(max_wait=10_000)) for member in (a, b)]
    await asyncio.sleep(0.02)
    broker.put("t", "x", "y")
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    assert [task.result() for task in done] == [[(0, 1, 1)]]
    broker.put("t", "z")
    assert sorted(await asyncio.gather(*waiting)) == [[(0, 1, 1)], [(2, 2, 1)]]


async def test_a_fetch_waits_for_what_others_give_back(broker: WholeBroker) -> None:
    a, b = await two(broker, 2)
    assert await a.take() == [(0, 1, 1)]
    waiting = asyncio.create_task(b.take(max_wait=10_000))
    await asyncio.sleep(0.02)
    assert await a.acknowledge((0, 1, RELEASE)) == "none"
    assert await waiting == [(0, 1, 2)]


async def test_a_fetch_waits_until_there_is_enough(broker: WholeBroker) -> None:
    a, _ = await two(broker, 1)
    waiting = asyncio.create_task(a.take(max_wait=10_000, min_bytes=100))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    broker.put("t", "y" * 100)
    assert await waiting == [(0, 1, 1)]


async def test_limits(broker: WholeBroker) -> None:
    a, b = await two(broker, 10, 10)
    assert await a.take(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert await a.take(max_records=3) == [(3, 9, 1)]
    assert await b.take(max_bytes=1) == [(10, 19, 1)]


async def test_where_a_group_begins(broker: WholeBroker) -> None:
    await broker.create("t")
    broker.put("t", "a", "b")
    for group, reset in (("late", "latest"), ("early", "earliest"), ("timed", "by_duration:PT1H")):
        await broker.services.cluster.alter_group_config(
            group,
            lambda _, reset=reset: {"share.auto.offset.reset": reset},  # type: ignore[misc]
        )
        await share(broker, group, "t")
    id = broker.image.topics_by_kafka_name["t"].id
    members = {group: ShareMember(broker, id, group, group) for group in ("late", "early", "timed")}
    assert await members["late"].take() == []
    broker.put("t", "c")
    assert await members["late"].take() == [(2, 2, 1)]
    assert [one[0] for one in await members["early"].take()] == [0]
    assert [one[0] for one in await members["timed"].take()] == [0]


async def test_committed_readers_get_no_aborted_records(broker: WholeBroker) -> None:
    await broker.create("t")
    await broker.services.cluster.alter_group_config(
        "g", lambda _: {"share.isolation.level": "read_committed"}
    )
    partition = broker.partition("t")
    partition.append(
        memoryview(records("a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)), -1
    )
    partition.end_transaction(7, 0, Marker(commit=False, coordinator_epoch=0))
    broker.put("t", "b")
    a = ShareMember(broker, await share(broker, "g", "t", 0), "a")
    assert await a.take() == [(2, 2, 1)]


async def test_what_is_unknown(broker: WholeBroker) -> None:
    a, _ = await two(broker, 1)
    answer = await a.fetch(partitions=(0, 5))
    assert {part.partition_index: part.error_code.name for part in answer.responses[0].partitions} == {
        0: "none",
        5: "unknown_topic_or_partition",
    }
    nobody = ShareMember(broker, a.topic_id, "")
    assert (await nobody.fetch()).error_code.name == "invalid_request"


async def test_a_deleted_topic(broker: WholeBroker) -> None:
    a, _ = await two(broker)
    waiting = asyncio.create_task(a.fetch(max_wait=10_000))
    await asyncio.sleep(0.02)
    await broker.services.cluster.delete_topic(broker.image.topics_by_kafka_name["t"].name)
    answer = await waiting
    assert answer.responses[0].partitions[0].error_code.name == "unknown_topic_id"


async def test_what_was_known_of_a_lost_end_does_not_hold_for_what_comes_there(broker: WholeBroker) -> None:
    a, _ = await two(broker, 4)
    states, key = broker.services.share_groups.states, ShareKey("g", a.topic_id, 0)
    batches = [StateBatch(2, 5, DeliveryState.ACKNOWLEDGED, 1), StateBatch(7, 8, DeliveryState.ARCHIVED, 2)]
    await states.write(key, (await states.read(key)).state_epoch, 0, batches)
    assert await a.take() == [(0, 1, 1)]
    kept = (await states.read(key)).batches
    assert [(first, last, state.name) for first, last, state, _ in kept] == [
        (2, 3, "ACKNOWLEDGED"),
        (4, 5, "AVAILABLE"),
        (7, 8, "AVAILABLE"),
    ]


async def test_an_offset_that_was_reset_ends_what_was_known(broker: WholeBroker) -> None:
    a, _ = await two(broker, 4)
    assert await a.take() == [(0, 3, 1)]
    await share(broker, "g", "t", 2)
    assert await a.acknowledge((0, 3, ACCEPT)) == "invalid_record_state"
    assert await a.take() == [(2, 3, 1)]
