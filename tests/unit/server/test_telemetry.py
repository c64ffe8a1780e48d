import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.errors import (
    Invalid,
    InvalidRecord,
    TelemetryTooLarge,
    Throttled,
    UnknownSubscription,
    UnsupportedCompression,
)
from anabranch.base.executors import thread_pool
from anabranch.meta.image import ClusterImage
from anabranch.records.compression import NONE, ZSTD, compress
from anabranch.server import telemetry as module
from anabranch.server.config import DynamicConfig
from anabranch.server.config_client_metrics import ClientMetricsConfig
from anabranch.server.config_file import load
from anabranch.server.peer import Peer
from anabranch.server.telemetry import Client, Push, Subscription, Telemetry, subscription_of
from tests.support.logs import SetClock

MINE = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER = UUID("10112233-4455-6677-8899-aabbccddeeff")
INTERVAL_MS = 1000


class Operators:
    """Stands where the cluster does: it has an image, with what operators ask for."""

    def __init__(self) -> None:
        self.image = ClusterImage(cluster_id="test")

    def want(self, **resources: Mapping[str, str]) -> None:
        self.image = ClusterImage(cluster_id="test", client_metrics=resources)


class World:
    def __init__(self) -> None:
        self.clock = SetClock()
        self.operators = Operators()
        self.config = DynamicConfig(load(None, {}, {"telemetry.max.bytes": "10000"}))
        operators: Any = self.operators
        self.telemetry = Telemetry(operators, self.config, self.clock, random.Random(3), thread_pool("t", 1))
        self.operators.want(all={"metrics": "org.", "interval.ms": str(INTERVAL_MS)})
        self.connection = 1

    def client(self) -> Client:
        return Client(self.connection, "app", Peer("192.0.2.1", 4711))

    def get(self, instance: UUID | None = MINE) -> Subscription:
        return self.telemetry.subscribe(instance, self.client())

    async def push(
        self, subscription: int | Subscription, instance: UUID | None = MINE, **fields: Any
    ) -> None:
        id = subscription if isinstance(subscription, int) else subscription.id
        values = {"terminating": False, "codec": NONE, "metrics": memoryview(b"")} | fields
        await self.telemetry.push(Push(instance, id, **values), self.client())


@pytest.fixture
def world() -> World:
    return World()


# --- what a client is asked for


def wanted(
    attributes: Mapping[str, str | None], *resources: Mapping[str, str]
) -> tuple[tuple[str, ...], int]:
    interests = [ClientMetricsConfig.build(resource) for resource in resources]
    subscription = subscription_of(MINE, attributes, interests, 1)
    return subscription.metrics, subscription.interval_ms


def test_nobody_asks() -> None:
    assert wanted({}) == ((), 300_000)


def test_everything_that_matches_taken_together() -> None:
    client = {"client_id": "app-7", "client_software_name": "librdkafka"}
    slow = {"metrics": "a,b", "interval.ms": "5000"}
    fast = {"metrics": "b,c", "interval.ms": "100", "match": "client_id=app-.*,client_software_name=lib.*"}
    for_others = {"metrics": "d", "interval.ms": "100", "match": "client_id=app"}  # all of it, not a part
    silent = {"metrics": "e", "match": "client_software_version=.*"}  # it has not said
    assert wanted(client | {"client_software_version": None}, slow, for_others, silent) == (("a", "b"), 5000)
    assert wanted(client, slow, fast) == (("a", "b", "c"), 100)


def test_all_metrics_are_said_to_be_all() -> None:
    assert wanted({}, {"metrics": "a"}, {"metrics": "*"})[0] == ("*",)


def test_the_subscription_id_follows_what_is_asked_for() -> None:
    def id_of(instance: UUID, **resource: str) -> int:
        config = ClientMetricsConfig.build(
            {name.replace("_", "."): value for name, value in resource.items()}
        )
        return subscription_of(instance, {}, [config], 1).id

    first = id_of(MINE, metrics="a,b")
    assert first == id_of(MINE, metrics="b,a") == id_of(MINE, metrics="a,b", interval_ms="300000")
    others = {
        id_of(OTHER, metrics="a,b"),
        id_of(MINE, metrics="a"),
        id_of(MINE, metrics="a,b", interval_ms="100"),
    }
    assert len(others | {first}) == 4
    assert all(-(1 << 31) <= id < 1 << 31 for id in others)


def test_what_subscriptions_are_matched_by() -> None:
    peer = Peer("192.0.2.1", 4711)
    peer.software_name, peer.software_version = "librdkafka", "2.16.1"
    assert Client(1, "app", peer).attributes(MINE) == {
        "client_instance_id": "ABEiM0RVZneImaq7zN3u_w",
        "client_id": "app",
        "client_software_name": "librdkafka",
        "client_software_version": "2.16.1",
        "client_source_address": "192.0.2.1",
        "client_source_port": "4711",
    }
    assert Client(1, None, Peer()).attributes(MINE)["client_source_port"] is None


def test_an_illegal_subscription_is_passed_over(world: World) -> None:
    world.operators.want(good={"metrics": "a"}, bad={"match": "nonsense"})
    assert world.get().metrics == ("a",)


# --- who may ask when


def test_a_new_client_is_given_an_id(world: World) -> None:
    first, second = world.get(None), world.get(None)
    assert first.instance_id != second.instance_id
    assert (first.instance_id.version, len(world.telemetry)) == (4, 2)


def test_asking_again_within_the_interval(world: World) -> None:
    first = world.get()
    world.clock.advance(INTERVAL_MS - 1)
    with pytest.raises(Throttled):
        world.get()
    world.clock.advance(1)
    assert world.get() == first


async def test_asking_within_the_interval_after_a_push(world: World) -> None:
    subscription = world.get()
    world.clock.advance(INTERVAL_MS)
    await world.push(subscription)
    with pytest.raises(Throttled):
        world.get()


async def test_another_subscription_may_be_asked_for_at_once(world: World) -> None:
    old = world.get()
    world.operators.want(all={"metrics": "*", "interval.ms": str(INTERVAL_MS)})
    with pytest.raises(UnknownSubscription):
        await world.push(old)
    new = world.get()
    assert new.id != old.id
    world.clock.advance(1)
    with pytest.raises(Throttled):
        world.get()


@pytest.mark.parametrize("codec", [7, -1])
async def test_after_a_codec_that_is_none_the_client_may_ask_at_once(world: World, codec: int) -> None:
    subscription = world.get()
    with pytest.raises(UnsupportedCompression):
        await world.push(subscription, codec=codec)
    assert world.get() == subscription


# --- who may push when


async def test_once_at_any_time_after_asking_then_once_an_interval(world: World) -> None:
    subscription = world.get()
    world.clock.advance(INTERVAL_MS // 2)  # clients spread their first push over the interval
    await world.push(subscription)
    world.clock.advance(INTERVAL_MS - 1)
    with pytest.raises(Throttled):
        await world.push(subscription)
    world.clock.advance(1)
    await world.push(subscription)
    assert world.telemetry.pushes == 2


async def test_the_last_push_comes_when_it_comes(world: World) -> None:
    subscription = world.get()
    await world.push(subscription)
    await world.push(subscription, terminating=True)
    for terminating in (False, True):
        with pytest.raises(Invalid):
            await world.push(subscription, terminating=terminating)
    assert world.telemetry.pushes == 2


async def test_the_wrong_subscription(world: World) -> None:
    subscription = world.get()
    with pytest.raises(UnknownSubscription):
        await world.push(subscription.id + 1)
    with pytest.raises(Throttled):
        await world.push(subscription)


@pytest.mark.parametrize("instance", [None, UUID(int=1)])
async def test_no_instance(world: World, instance: UUID | None) -> None:
    with pytest.raises(Invalid):
        await world.push(1, instance)
    assert len(world.telemetry) == 0


async def test_limits_of_what_is_pushed(world: World) -> None:
    subscription = world.get()
    await world.push(subscription, metrics=memoryview(bytes(10_000)))
    world.clock.advance(INTERVAL_MS)
    with pytest.raises(TelemetryTooLarge):
        await world.push(subscription, metrics=memoryview(bytes(10_001)))
    world.clock.advance(INTERVAL_MS)
    bomb = memoryview(bytes(compress(ZSTD, bytes(10_001))))
    with pytest.raises(TelemetryTooLarge):
        await world.push(subscription, codec=ZSTD, metrics=bomb)
    world.clock.advance(INTERVAL_MS)
    with pytest.raises(InvalidRecord):
        await world.push(subscription, codec=ZSTD, metrics=memoryview(b"garbage"))
    assert (world.telemetry.pushes, world.telemetry.pushed_bytes) == (1, 10_000)


async def test_what_is_large_is_unpacked_elsewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_INLINE_BYTES", 10)
    noise = random.Random(5).randbytes(9000)
    await world.push(world.get(), codec=ZSTD, metrics=memoryview(bytes(compress(ZSTD, noise))))
    assert world.telemetry.pushed_bytes == 9000


# --- who is remembered


def test_on_another_connection_an_instance_starts_anew(world: World) -> None:
    first = world.get()
    world.connection = 2
    assert world.get() == first
    assert len(world.telemetry) == 1


def test_the_silent_are_forgotten(world: World) -> None:
    world.operators.want(all={"interval.ms": "100000"})
    world.get(MINE)
    world.clock.advance(299_999)
    world.get(OTHER)
    assert len(world.telemetry) == 2
    world.clock.advance(1)
    world.get(None)
    assert len(world.telemetry) == 2  # OTHER and the new one


def test_there_are_only_so_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INSTANCES", 100)
    for _ in range(500):
        world.get(None)
    assert len(world.telemetry) == 100
