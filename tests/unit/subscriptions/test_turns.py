"""What a subscription waits for between turns: rates, disks, delays, errors; and rules that change."""

import asyncio
from pathlib import Path

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import Corrupt
from anabranch.base.rate_limit import RateLimit
from anabranch.partition.entries import Entries
from anabranch.subscriptions.delay import Delays
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.settings import SubscriptionSettings
from tests.support.subscriptions import Bench, Log

INDIVIDUAL = [SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED]


@pytest.fixture(params=INDIVIDUAL)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """With an index of delays."""
    bench = Bench(request.param)
    bench.subscription.delay = delays(bench, tmp_path).view()
    return bench


def delays(bench: Bench, folder: Path) -> Delays:
    return Delays(DirectDisk(8), folder, bench.time.ms)


# --- rates


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_the_dispatch_rate_bounds_what_is_delivered(kind: SubscriptionKind) -> None:
    bench = Bench(kind)
    bench.subscription.limits = [RateLimit(bench.time, 10, 0), RateLimit(bench.time, 0, 1 << 30)]
    bench.fill(100)
    client = bench.client(permits=1000)
    assert client.offsets == list(range(10))
    for second in range(1, 5):
        bench.time.pass_ms(1000)
        assert abs(len(client.offsets) - 10 * (second + 1)) <= 1
    bench.subscription.limits = ()
    bench.time.pass_ms(1000)
    assert client.offsets == list(range(100))


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_a_rate_in_bytes(kind: SubscriptionKind) -> None:
    bench = Bench(kind)
    size = len(bench.log.entries[0].payload) if bench.log.append() == 0 else 0
    bench.subscription.limits = [RateLimit(bench.time, 0, 3 * size)]
    bench.fill(20)
    client = bench.client(permits=1000)
    assert 1 <= len(client.offsets) <= 4
    bench.time.pass_ms(20_000)
    assert client.offsets == list(range(21))


# --- the disk, and what cannot be read


class ColdLog(Log):
    """Everything has to come from the disk first."""

    asked: "asyncio.Future[None] | None" = None
    is_warm = False

    def read(self, offset: int, max_bytes: int) -> Entries:
        if not self.is_warm and offset < self.end:
            self.asked = asyncio.get_running_loop().create_future()
            return Entries([], offset, self.asked)
        return super().read(offset, max_bytes)


@pytest.mark.parametrize("kind", SubscriptionKind)
async def test_what_is_on_the_disk_is_delivered_when_it_is_read(kind: SubscriptionKind) -> None:
    bench = Bench(kind)
    bench.log.__class__ = ColdLog
    log: ColdLog = bench.log  # type: ignore[assignment]
    client = bench.client(permits=10)
    bench.fill(3)
    assert client.offsets == []
    assert log.asked is not None
    log.asked.set_exception(OSError("the disk"))
    await asyncio.sleep(0)
    bench.time.pass_ms(1000)  # tried again
    log.is_warm = True
    log.asked.set_result(None)
    await asyncio.sleep(0)
    bench.run()
    assert client.offsets == [0, 1, 2]


class BrokenLog(Log):
    is_broken = True

    def read(self, offset: int, max_bytes: int) -> Entries:
        if self.is_broken:
            raise Corrupt("the batch is not what it claims to be")
        return super().read(offset, max_bytes)


def test_what_cannot_be_read_is_tried_again() -> None:
    bench = Bench(SubscriptionKind.EXCLUSIVE)
    bench.log.__class__ = BrokenLog
    client = bench.client(permits=10)
    bench.fill(1)
    assert client.offsets == []
    bench.log.is_broken = False  # type: ignore[attr-defined]
    bench.time.pass_ms(1000)
    assert client.offsets == [0]


# --- delays


def test_a_delayed_message_comes_when_it_is_due(bench: Bench) -> None:
    client = bench.client(permits=10)
    bench.log.append(deliver_at_time=bench.time.ms + 5000)
    bench.log.append()
    bench.run()
    assert client.offsets == [1]
    bench.time.pass_ms(4000)
    assert client.offsets == [1]
    bench.time.pass_ms(1100)
    assert client.offsets == [1, 0]
    client.ack(0, 1)
    assert bench.cursor.mark_delete == 2


def test_a_delayed_message_goes_to_who_comes_later(bench: Bench) -> None:
    first = bench.client(permits=10)
    bench.log.append(deliver_at_time=bench.time.ms + 5000)
    bench.run()
    first.close()
    bench.time.pass_ms(6000)
    second = bench.client(permits=10)
    bench.time.pass_ms(10)
    assert second.offsets == [0]
    second.nack(0)
    bench.run()
    assert second.offsets == [0, 0]


def test_one_consumer_does_not_wait_for_delays() -> None:
    bench = Bench(SubscriptionKind.EXCLUSIVE)
    client = bench.client(permits=10)
    bench.log.append(deliver_at_time=bench.time.ms + 5000)
    bench.run()
    assert client.offsets == [0]


def test_without_delays_by_the_rules_messages_come_at_once(bench: Bench) -> None:
    bench.subscription.settings = SubscriptionSettings(delays_delivery=False)
    client = bench.client(permits=10)
    bench.log.append(deliver_at_time=bench.time.ms + 5000)
    bench.run()
    assert client.offsets == [0]


def test_a_seek_forgets_who_waits_and_finds_it_again(bench: Bench) -> None:
    client = bench.client(permits=10)
    bench.log.append(deliver_at_time=bench.time.ms + 5000)
    bench.log.append()
    bench.run()
    client.ack(1)
    bench.subscription.seek(0)
    again = bench.client(permits=10)
    assert again.offsets == [1]
    bench.time.pass_ms(5100)
    assert again.offsets == [1, 0]


def test_what_waits_for_its_time_is_not_delivered_twice(bench: Bench) -> None:
    client = bench.client(permits=1)
    at = bench.time.ms + 1000
    for _ in range(5):
        bench.log.append(deliver_at_time=at)
    bench.log.append()
    bench.run()
    bench.time.pass_ms(2000)
    client.flow(20)
    bench.time.pass_ms(2000)
    assert sorted(client.offsets) == list(range(6))


# --- rules


def test_other_bounds_apply_at_once() -> None:
    tight = SubscriptionSettings(max_unacked_per_consumer=2)
    bench = Bench(SubscriptionKind.SHARED, settings=tight)
    client = bench.client(permits=10)
    bench.fill(6)
    assert client.offsets == [0, 1]
    bench.subscription.settings = SubscriptionSettings(max_unacked_per_consumer=4)
    bench.run()
    assert client.offsets == [0, 1, 2, 3]
    bench.subscription.settings = tight
    client.ack(0, 1)
    bench.run()
    assert client.offsets == [0, 1, 2, 3]
    client.ack(2)
    bench.run()
    assert client.offsets == [0, 1, 2, 3, 4]
