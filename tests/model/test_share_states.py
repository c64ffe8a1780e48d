"""What is kept of share partitions, against a dictionary: writes, resets, deletions, restarts, pruning."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.errors import (
    CoordinatorNotAvailable,
    DiskFailed,
    FencedLeaderEpoch,
    FencedStateEpoch,
    Invalid,
    NoShareState,
    TooLarge,
    UnknownTopic,
)
from anabranch.base.ids import TopicName
from anabranch.groups.share_config import ShareStateConfig
from anabranch.groups.share_state import DeliveryState, ShareKey, ShareState, ShareStates, StateBatch
from anabranch.groups.share_states import (
    SHARE_STATE_TOPIC,
    read_share_key,
    share_key_text,
)
from anabranch.log.config import LogConfig
from anabranch.partition.partition import Partition
from tests.support.coordinators import Coordinators
from tests.support.hosts import a_host
from tests.support.images import topic_image
from tests.support.logs import SetClock

PARTITIONS = 2
ID = UUID(int=7)
KEY = ShareKey("g", UUID(int=1), 0)
FREE, DONE, SET_ASIDE = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


class Kept:
    def __init__(self, data: Path, *, with_topic: bool = True, **config: Any) -> None:
        clock = SetClock()
        self.host = a_host(data, clock)
        if with_topic:
            self.add()
        self.host.recover()
        told = ShareStateConfig(**config)
        self.states = Coordinators(self.host, clock).share_states(self.make, lambda: told)

    def add(self) -> None:
        config = LogConfig.build(ShareStateConfig().topic_config, {})
        self.host.add_topic(topic_image(SHARE_STATE_TOPIC, ID, PARTITIONS), config)

    async def make(self) -> None:
        self.add()

    def records(self) -> int:
        partitions = [self.host.partition(SHARE_STATE_TOPIC, index) for index in range(PARTITIONS)]
        return sum(partition.log_end - partition.log_start for partition in partitions)


@asynccontextmanager
async def kept(data: Path, **config: Any) -> AsyncIterator[Kept]:
    keeper = Kept(data, **config)
    try:
        yield keeper
    finally:
        keeper.states.close()
        keeper.host.close()


async def test_it_is_what_leaders_are_promised(tmp_path: Path) -> None:
    async with kept(tmp_path, with_topic=False) as keeper:
        states: ShareStates = keeper.states
        with pytest.raises(CoordinatorNotAvailable):
            await states.read(KEY)
        assert await keeper.states.look(KEY) is None
        await keeper.states.delete([KEY])
        changed: list[ShareKey] = []
        states.on_change(changed.append)
        await keeper.states.initialise(KEY, 3, -1)
        assert changed == [KEY]
        assert await states.read(KEY) == ShareState(3, -1, ())
        await states.write(KEY, 3, 5, [StateBatch(7, 9, DONE, 1)])
        assert await states.read(KEY) == ShareState(3, 5, (StateBatch(7, 9, DONE, 1),))
        with pytest.raises(NoShareState):
            await states.read(KEY._replace(partition=1))
        with pytest.raises(NoShareState):
            await states.write(KEY._replace(group="h"), 3, 5, [])
        await keeper.states.delete([KEY])
        assert changed == [KEY, KEY]
        with pytest.raises(NoShareState):
            await states.write(KEY, 3, 6, [])


async def test_whoever_was_replaced_is_fenced(tmp_path: Path) -> None:
    async with kept(tmp_path) as keeper:
        states = keeper.states
        await states.initialise(KEY, 3, 0)
        await states.read(KEY, leader_epoch=4)
        with pytest.raises(FencedLeaderEpoch):
            await states.read(KEY, leader_epoch=3)
        with pytest.raises(FencedLeaderEpoch):
            await states.write(KEY, 3, 1, [], leader_epoch=3)
        await states.write(KEY, 3, 1, [], leader_epoch=4)
        await states.write(KEY, 3, 2, [])  # who does not say which leader it is
        with pytest.raises(FencedStateEpoch):
            await states.initialise(KEY, 2, 0)
        await states.initialise(KEY, 4, 9)
        with pytest.raises(FencedStateEpoch):
            await states.write(KEY, 3, 2, [], leader_epoch=4)
        assert await states.read(KEY) == ShareState(4, 9, ())
    async with kept(tmp_path) as keeper:
        with pytest.raises(FencedStateEpoch):
            await keeper.states.write(KEY, 3, 2, [])


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(5, 4, DONE, 1),
        StateBatch(-1, 4, DONE, 1),
        StateBatch(1, 4, DeliveryState.ACQUIRED, 1),
        StateBatch(1, 4, DONE, 1 << 15),
    ],
)
async def test_what_cannot_be_kept_is_refused(tmp_path: Path, batch: StateBatch) -> None:
    async with kept(tmp_path) as keeper:
        await keeper.states.initialise(KEY, 3, 0)
        with pytest.raises(Invalid):
            await keeper.states.write(KEY, 3, 0, [batch])


async def test_there_are_not_more_batches_than_a_snapshot_holds(tmp_path: Path) -> None:
    async with kept(tmp_path, updates_per_snapshot=2) as keeper:
        await keeper.states.initialise(KEY, 3, 0)
        for part in range(4):
            batches = [StateBatch(n, n, DONE, 1) for n in range(part * 20_000, (part + 1) * 20_000, 2)]
            await keeper.states.write(KEY, 3, 0, batches)
        state = await keeper.states.read(KEY)
        assert len(state.batches) == 40_000
        with pytest.raises(TooLarge):
            await keeper.states.write(KEY, 3, 0, [StateBatch(80_002, 80_002, DONE, 1)])
        await keeper.states.write(KEY, 3, 0, [StateBatch(0, 80_000, DONE, 1)])
        assert (await keeper.states.read(KEY)).batches == (StateBatch(0, 80_000, DONE, 1),)


async def test_a_disk_that_fails_while_it_is_cut_off_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path, prune_interval_ms=1) as keeper:
        await keeper.states.initialise(KEY, 1, 0)
        for offset in range(1500):
            await keeper.states.write(KEY, 1, offset, [StateBatch(offset + 2, offset + 2, DONE, 1)])
        failures = [OSError(errno.EIO, "broken"), DiskFailed("broken")]
        trim = Partition.trim

        def trimmed(partition: Partition, offset: int) -> int:
            if failures:
                raise failures.pop()
            return trim(partition, offset)

        monkeypatch.setattr(Partition, "trim", trimmed)
        running = asyncio.create_task(keeper.states.run())
        async with asyncio.timeout(60):
            while keeper.records() > 10 and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert not running.done()
        assert not failures
        running.cancel()
        assert await keeper.states.read(KEY) == ShareState(1, 1499, (StateBatch(1499, 1501, DONE, 1),))


async def test_a_topic_that_goes_while_it_is_read_does_not_end_what_keeps_it_short(tmp_path: Path) -> None:
    async with kept(tmp_path) as keeper:
        await keeper.states.initialise(KEY, 1, 0)
    async with kept(tmp_path) as keeper:
        running = asyncio.create_task(keeper.states.run())
        await asyncio.sleep(0)
        keeper.host.remove_topic(TopicName.from_kafka(SHARE_STATE_TOPIC))
        keeper.add()
        with pytest.raises(NoShareState):
            await keeper.states.read(KEY)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()


async def test_a_topic_that_is_made_anew_has_nothing_to_do_with_one_that_went_while_it_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(tmp_path) as keeper:
        await keeper.states.initialise(KEY, 1, 0)
    async with kept(tmp_path) as keeper:
        reading = asyncio.create_task(keeper.states.read(KEY))
        await asyncio.sleep(0)
        keeper.host.remove_topic(TopicName.from_kafka(SHARE_STATE_TOPIC))
        with pytest.raises(UnknownTopic):
            await reading
        keeper.add()
        with pytest.raises(NoShareState):
            await keeper.states.read(KEY)
    assert "cannot be read" not in caplog.text


async def test_what_newer_records_have_replaced_is_cut_off(tmp_path: Path) -> None:
    async with kept(tmp_path) as keeper:
        await keeper.states.initialise(KEY, 1, 0)
        await keeper.states.initialise(KEY._replace(group="idle"), 1, 17)
        for offset in range(1500):
            await keeper.states.write(KEY, 1, offset, [StateBatch(offset + 2, offset + 2, DONE, 1)])
        before = keeper.records()
        await keeper.states.prune()
        assert before > 1500 > 10 > keeper.records()
        state = await keeper.states.read(KEY)
    async with kept(tmp_path) as keeper:
        assert (
            await keeper.states.read(KEY) == state == ShareState(1, 1499, (StateBatch(1499, 1501, DONE, 1),))
        )
        assert (await keeper.states.read(KEY._replace(group="idle"))).start_offset == 17


async def test_a_deleted_topic_is_forgotten(tmp_path: Path) -> None:
    async with kept(tmp_path) as keeper:
        other = KEY._replace(topic_id=UUID(int=2))
        for key in (KEY, other):
            await keeper.states.initialise(key, 1, 0)
        keeper.states.topics_deleted({KEY.topic_id})
        for _ in range(10):
            await asyncio.sleep(0)
        assert await keeper.states.look(KEY) is None
        assert await keeper.states.look(other) is not None


def test_names_of_share_partitions() -> None:
    assert read_share_key(share_key_text(KEY)) == KEY
    for text in ("", "g", "g:x:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:-1", ":AAAAAAAAAAAAAAAAAAAAAQ:0", "a:b:c:d"):
        with pytest.raises(Invalid):
            read_share_key(text)


class Naive:
    """A share partition, offset by offset."""

    def __init__(self, epoch: int, start: int) -> None:
        self.epoch, self.start = epoch, start
        self.said: dict[int, tuple[DeliveryState, int]] = {}

    def write(self, start: int, batches: list[StateBatch]) -> None:
        for first, last, state, count in batches:
            self.said.update(dict.fromkeys(range(first, last + 1), (state, count)))
        self.start = start if start >= 0 else self.start
        self.said = {offset: said for offset, said in self.said.items() if offset >= self.start}

    def same_as(self, state: ShareState) -> bool:
        found = {
            offset: (batch.delivery_state, batch.delivery_count)
            for batch in state.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        return (state.state_epoch, state.start_offset, found) == (self.epoch, self.start, self.said)


@pytest.mark.parametrize("seed", range(6))
async def test_it_is_a_dictionary_that_survives(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    keys = [ShareKey(f"g{i % 3}", UUID(int=i % 2 + 1), i) for i in range(6)]
    model: dict[ShareKey, Naive] = {}
    config = {"updates_per_snapshot": chance.choice((0, 1, 7, 500))}
    for _ in range(8):
        async with kept(tmp_path, **config) as keeper:
            for _ in range(chance.randint(1, 300)):
                await act(keeper, chance, chance.choice(keys), model)
            for key in keys:
                if key in model:
                    assert model[key].same_as(await keeper.states.read(key)), key
                else:
                    assert await keeper.states.look(key) is None


async def act(keeper: Kept, chance: Random, key: ShareKey, model: dict[ShareKey, Naive]) -> None:
    known, what = model.get(key), chance.random()
    if known is None or what < 0.03:
        epoch = 0 if known is None else known.epoch + chance.randint(0, 1)
        model[key] = Naive(epoch, chance.choice((-1, 0, 50)))
        await keeper.states.initialise(key, epoch, model[key].start)
    elif what < 0.05:
        del model[key]
        await keeper.states.delete([key])
    elif what < 0.06:
        await keeper.states.prune()
    else:
        start = chance.choice((-1, known.start, known.start + chance.randint(0, 9)))
        batches = []
        for _ in range(chance.randint(0, 3)):
            first = max(0, known.start) + chance.randint(0, 60)
            state = chance.choice((FREE, DONE, SET_ASIDE))
            batches.append(StateBatch(first, first + chance.randint(0, 9), state, chance.randint(1, 5)))
        known.write(start, batches)
        await keeper.states.write(key, known.epoch, start, batches)
