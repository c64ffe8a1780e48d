"""A share partition at work: locks that end, writes that fail, leaders that are fenced, what is kept."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from anabranch.base.errors import DiskFull, FencedStateEpoch, InvalidRecordState, NotOwner
from anabranch.base.executors import thread_pool
from anabranch.base.ids import BrokerId
from anabranch.groups.config import GroupConfig
from anabranch.groups.share_state import Changed, DeliveryState, ShareKey, ShareState, StateBatch
from anabranch.partition.partition import Partition
from anabranch.partition.translations import Translations
from anabranch.records.control import Marker
from anabranch.subscriptions.share_live import LiveSharePartition, ShareSurroundings, rules_of
from anabranch.subscriptions.share_partition import Ack, AckKind, Cause, GivenUp, SharePartition
from anabranch.subscriptions.share_taking import Asked
from tests.support.logs import SetClock, open_log_in, records

KEY = ShareKey("g", UUID(int=1), 0)
LOCK_MS = 30_000
FREE, DONE, GONE = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


class States:
    """Keeps what is written, or fails with what it is told to."""

    def __init__(self) -> None:
        self.written: list[tuple[int, list[StateBatch], int]] = []
        self.failure: Exception | None = None
        self.slowness: asyncio.Event | None = None

    async def read(self, key: ShareKey, leader_epoch: int = -1) -> ShareState:
        return ShareState(0, 0, ())

    async def write(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        if self.slowness is not None:
            await self.slowness.wait()
        if self.failure is not None:
            raise self.failure
        self.written.append((start_offset, list(batches), delivery_complete_count))

    def on_change(self, changed: Changed) -> None: ...


class Alarm:
    """A timer that rings when the test says so."""

    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None
        self.delay_s = 0.0
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None], /) -> object:
        self.soon.append(callback)
        return self

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> "Alarm":
        self.callback, self.delay_s = callback, delay_s
        return self

    def cancel(self) -> None:
        self.callback = None

    def ring(self) -> None:
        callback, self.callback = self.callback, None
        assert callback is not None
        callback()


class Scene:
    def __init__(self, folder: Path) -> None:
        self.clock, self.alarm, self.states = SetClock(), Alarm(), States()
        self.config = GroupConfig()
        self.buried: list[GivenUp] = []
        threads = thread_pool("t", 1)
        self.partition = Partition(
            0, open_log_in(folder), BrokerId(1), 0, self.clock, lambda _: None, Translations(threads), threads
        )

        async def bury(key: ShareKey, partition: Partition, given_up: Sequence[GivenUp]) -> None:
            self.buried += given_up

        around = ShareSurroundings(self.clock, self.alarm, self.states, lambda group: self.config, bury)
        share = SharePartition(0, rules_of(self.config))
        self.live = LiveSharePartition(KEY, self.partition, share, 0, around)

    def put(self, count: int) -> None:
        self.partition.append(memoryview(records(*"x" * count)), 1)

    def take(self, member: str = "a", most: int = 100) -> list[tuple[int, int, int]]:
        taken = self.live.fetch(member, 1 << 20, Asked(most), whole_first=True)
        return [] if taken is None else [tuple(one) for one in taken.acquired]

    async def settle(self, first: int, end: int, kind: AckKind = AckKind.ACCEPT, member: str = "a") -> None:
        await self.live.acknowledge(member, [Ack(first, end, kind)])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_lock_ends(scene: Scene) -> None:
    scene.put(4)
    assert scene.take() == [(0, 3, 1)]
    assert scene.alarm.delay_s == pytest.approx(30, abs=0.01)
    scene.clock.advance(LOCK_MS + 1)
    woken: list[int] = []
    scene.live.wait(lambda: woken.append(1))
    scene.alarm.ring()
    await turns()
    assert woken
    assert scene.states.written == [(0, [StateBatch(0, 3, FREE, 1)], 0)]
    assert scene.take("b") == [(0, 3, 2)]
    with pytest.raises(InvalidRecordState):
        await scene.settle(0, 4)


async def test_a_lock_that_is_renewed_lasts(scene: Scene) -> None:
    scene.put(4)
    scene.take()
    scene.clock.advance(LOCK_MS - 1)
    await scene.settle(0, 2, AckKind.RENEW)
    scene.clock.advance(2)
    scene.alarm.ring()
    await turns()
    assert scene.states.written == [(0, [StateBatch(2, 3, FREE, 1)], 0)]
    assert scene.alarm.delay_s == pytest.approx(30, abs=0.01)
    scene.config = GroupConfig(share_renew_acknowledge_enable=False)
    with pytest.raises(InvalidRecordState):
        await scene.settle(0, 2, AckKind.RENEW)


async def test_what_was_delivered_too_often_is_given_up(scene: Scene) -> None:
    scene.config = GroupConfig(share_delivery_count_limit=2)
    scene.put(2)
    for _ in range(2):
        scene.take()
        scene.clock.advance(LOCK_MS + 1)
        scene.alarm.ring()
        await turns()
    assert scene.buried == [GivenUp(0, 2, 2, Cause.DELIVERED_TOO_OFTEN)]
    assert scene.states.written[-1] == (2, [StateBatch(0, 1, GONE, 2)], 0)
    assert scene.take() == []


async def test_what_cannot_be_written_did_not_happen(scene: Scene) -> None:
    scene.put(4)
    scene.take()
    scene.states.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await scene.settle(0, 4)
    assert scene.take("b") == []
    scene.states.failure = None
    await scene.settle(0, 4)
    assert scene.states.written == [(4, [StateBatch(0, 3, DONE, 1)], 0)]


async def test_a_lock_that_cannot_be_ended_is_tried_again_after_a_while(scene: Scene) -> None:
    scene.put(4)
    scene.put(4)
    scene.take(most=4)
    scene.clock.advance(LOCK_MS // 2)
    scene.take("b")
    scene.clock.advance(LOCK_MS // 2 + 1)
    scene.states.failure = DiskFull("no room")
    scene.alarm.ring()
    await turns()
    assert scene.alarm.delay_s == 1.0
    assert scene.take("b") == []
    scene.states.failure = None
    scene.clock.advance(1_000)
    scene.alarm.ring()
    await turns()
    assert scene.take("b") == [(0, 3, 2)]


async def test_nobody_gets_what_is_not_durably_free(scene: Scene) -> None:
    scene.put(4)
    scene.take()
    scene.states.slowness = asyncio.Event()
    releasing = asyncio.create_task(scene.settle(0, 4, AckKind.RELEASE))
    await turns()
    assert scene.take("b") == []
    scene.states.slowness.set()
    await releasing
    assert scene.take("b") == [(0, 3, 2)]


async def test_changes_are_written_one_after_the_other(scene: Scene) -> None:
    scene.put(4)
    scene.take()
    scene.states.slowness = asyncio.Event()
    both = asyncio.gather(scene.settle(0, 2), scene.settle(2, 4))
    await turns()
    scene.states.slowness.set()
    await both
    assert [start for start, _, _ in scene.states.written] == [2, 4]


async def test_a_leader_that_is_fenced_gives_out_nothing(scene: Scene) -> None:
    scene.put(4)
    scene.take(most=2)
    scene.states.failure = FencedStateEpoch("it was reset")
    with pytest.raises(FencedStateEpoch):
        await scene.settle(0, 2)
    assert scene.live.is_closed
    with pytest.raises(NotOwner):
        scene.take()


async def test_what_retention_takes_is_settled(scene: Scene) -> None:
    scene.put(4)
    scene.put(4)
    assert scene.take(most=4) == [(0, 3, 1)]
    scene.partition.trim(6)
    await scene.settle(0, 4)
    assert scene.states.written == []
    assert scene.take("b") == [(6, 7, 1)]


async def test_a_member_that_goes_gives_back(scene: Scene) -> None:
    scene.put(4)
    scene.take()
    scene.live.release("a")
    await turns()
    assert scene.states.written == [(0, [StateBatch(0, 3, FREE, 1)], 0)]
    assert scene.take("b") == [(0, 3, 2)]


async def test_a_full_window_waits(scene: Scene) -> None:
    scene.config = GroupConfig(share_partition_max_record_locks=100)
    for _ in range(3):
        scene.put(60)
    assert scene.take(most=1_000) == [(0, 59, 1), (60, 119, 1)]
    assert scene.take() == []
    await scene.settle(0, 60)
    assert scene.take() == [(120, 179, 1)]


async def test_behind_much_that_is_nobodys_there_may_be_more(scene: Scene) -> None:
    """A look does not read on for ever; whoever waits then looks again."""
    scene.config = GroupConfig(share_isolation_level="read_committed")
    for number in range(8):
        made = records("x", producer_id=7, producer_epoch=0, base_sequence=number, transactional=True)
        scene.partition.append(memoryview(made), 1)
        scene.partition.end_transaction(7, 0, Marker(commit=False, coordinator_epoch=0))
    scene.put(1)
    looks = 0
    while (taken := scene.live.fetch("a", 1, Asked(10), whole_first=True)) is None:
        looks += 1
        assert len(scene.alarm.soon) == looks
    assert looks == 4
    assert taken.acquired == [(16, 16, 1)]
