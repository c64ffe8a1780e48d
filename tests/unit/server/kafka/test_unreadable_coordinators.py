"""Coordinators whose log cannot be opened or read: every request has its code, and all is well afterwards."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.base.disk import File
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.offsets import CommittedOffsets
from anabranch.groups.shard import GroupShard
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import release
from tests.unit.server.kafka import group_requests, transacting
from tests.unit.server.kafka.whole_broker import WholeBroker, open_broker

UNAVAILABLE = ErrorCode.coordinator_not_available
CONSUMER_DESCRIBE, SHARE_DESCRIBE = 69, 77
TOPICS = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
WANTED = [{"name": "orders", "partition_indexes": [0]}]


class Trouble:
    """What the system says to whoever opens a file of a topic."""

    def __init__(self, topic: str, number: int) -> None:
        self._topic = topic
        self._number = number
        self._open = os.open
        self.tries = 0

    def __call__(self, path: Any, *args: Any, **options: Any) -> int:
        if self._topic in str(path):
            self.tries += 1
            raise OSError(self._number, os.strerror(self._number), str(path))
        return self._open(path, *args, **options)


@asynccontextmanager
async def restarted(data: Path, topic: str, index: int, *, is_open: bool) -> AsyncIterator[WholeBroker]:
    """A broker whose log of a shard is open, though nothing is read yet, or is not."""
    async with open_broker(data) as broker:
        if is_open:
            broker.partition(topic, index)
            release(broker.services.partitions._disk)  # its descriptors: the next read needs new ones
        yield broker


async def offset(broker: WholeBroker) -> tuple[int, int]:
    """What the group has committed: the code, and the offset."""
    answer = await broker.ask(9, 8, groups=[{"group_id": "g", "topics": WANTED}])
    group = answer.groups[0]
    return group.error_code, group.topics[0].partitions[0].committed_offset if group.topics else -1


async def commit(broker: WholeBroker) -> int:
    answer = await broker.ask(8, 9, group_id="g", topics=TOPICS)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(data: Path) -> int:
    """A group that has committed an offset; its shard."""
    async with open_broker(data) as broker:
        await broker.create("orders")
        assert await commit(broker) == 0
        return broker.services.groups.shard_of("g")


async def codes_of_groups(broker: WholeBroker) -> set[int]:
    beat = group_requests.send_heartbeat(broker, 4, generation_id=1, member_id="m")
    described = [
        (await broker.ask(group_requests.DESCRIBE, 6, groups=["g"])).groups[0],
        (await broker.ask(CONSUMER_DESCRIBE, 1, group_ids=["g"])).groups[0],
        (await broker.ask(SHARE_DESCRIBE, 1, group_ids=["g"])).groups[0],
    ]
    answers = [
        *described,
        (await broker.ask(group_requests.DELETE, 2, groups_names=["g"])).results[0],
        await broker.ask(group_requests.LIST, 5),
        await group_requests.join(broker),
        await broker.ask(group_requests.SYNC, 4, group_id="g", member_id="m", generation_id=1),
        await broker.ask(group_requests.LEAVE, 5, group_id="g", members=[{"member_id": "m"}]),
        await group_requests.heartbeat_answer(beat, 4),
        await broker.ask(68, 0, group_id="g", member_id="m", member_epoch=0),
        await broker.ask(76, 1, group_id="g", member_id="m", member_epoch=0),
    ]
    return {answer.error_code for answer in answers} | {await commit(broker), (await offset(broker))[0]}


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("is_open", [False, True])
async def test_a_group_whose_shard_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    is_open: bool,
) -> None:
    index = await committed(tmp_path)
    trouble = Trouble(OFFSETS_TOPIC, number)
    async with restarted(tmp_path, OFFSETS_TOPIC, index, is_open=is_open) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", trouble)
            assert await codes_of_groups(broker) == {UNAVAILABLE}
            assert trouble.tries == 1, "the disk is left alone for a while"
            assert f"-{index}: cannot be read" in caplog.text
            broker.clock.advance(1000)
            assert await codes_of_groups(broker) == {UNAVAILABLE}
            assert trouble.tries == 2
        broker.clock.advance(1999)
        assert await offset(broker) == (UNAVAILABLE, -1)
        broker.clock.advance(1)
        assert await offset(broker) == (0, 5)
        assert await commit(broker) == 0


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_transaction_whose_shard_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    async with open_broker(tmp_path) as broker:
        await broker.create("orders")
        before = await transacting.Client.introduced(broker, "copy")
        assert await before.add(("orders", 0)) == {("orders", 0): 0}
        index = broker.services.transactions.shard_of("copy")
    trouble = Trouble(STATE_TOPIC, errno.EIO)
    async with restarted(tmp_path, STATE_TOPIC, index, is_open=is_open) as broker:
        client = transacting.Client(broker, "copy")
        client.producer_id, client.epoch = before.producer_id, before.epoch
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", trouble)
            for _ in range(2):
                assert await client.introduce() == UNAVAILABLE
                assert await client.add(("orders", 0)) == {("orders", 0): UNAVAILABLE}
                assert await client.end(commit=True) == UNAVAILABLE
                described = await broker.ask(transacting.DESCRIBE, 0, transactional_ids=["copy"])
                assert described.transaction_states[0].error_code == UNAVAILABLE
            assert await client.produce("orders", "a") == ErrorCode.not_enough_replicas, "which it retries"
        assert trouble.tries == 1
        broker.clock.advance(1000)
        assert await client.add(("orders", 0)) == {("orders", 0): 0}, "it is open as it was"
        assert await client.produce("orders", "a") == 0
        assert await client.end(commit=True) == 0


def fail(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("nobody has thought of this")


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (CommittedOffsets, "replay", fail),
        (GroupShard, "loaded", fail),
        (File, "pread", lambda *_: b""),  # as if the file had been cut
    ],
)
async def test_a_load_that_dies_of_anything_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    name: str,
    broken: Callable[..., Any],
) -> None:
    index = await committed(tmp_path)
    async with restarted(tmp_path, OFFSETS_TOPIC, index, is_open=True) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, broken)
            for _ in range(2):
                async with asyncio.timeout(60):
                    assert await offset(broker) == (UNAVAILABLE, -1)
        broker.clock.advance(1000)
        assert await offset(broker) == (0, 5)
