"""The way to a group's shard: where it is, loading it, what happens when it cannot be written or is gone."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    DiskFull,
    InvalidProducerEpoch,
    NotCoordinator,
    TooLarge,
    Unavailable,
)
from anabranch.base.ids import TopicName
from anabranch.base.seldom import Seldom
from anabranch.groups import replaying, runtime
from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.config import GroupConfig
from anabranch.groups.consumer_requests import Heartbeat
from anabranch.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator, java_hash, partition_for
from anabranch.groups.deletion import delete_group
from anabranch.groups.effects import Answer, Effects, Producer, Token
from anabranch.groups.offsets import Fetch, TopicPartitions
from anabranch.groups.shard import GroupShard
from anabranch.records.builder import build_batch
from anabranch.records.record import Record
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.coordinators import Coordinators, add_topic
from tests.support.hosts import a_host
from tests.support.logs import SetClock
from tests.support.offsets import in_columns
from tests.support.waiting import until

PARTITIONS = 3
TOPIC_ID = UUID(int=7)


class Cluster:
    """One broker's partitions and what it knows of topics."""

    def __init__(self, data: Path, clock: SetClock) -> None:
        self.host = a_host(data, clock)
        self.made = 0
        self.refuses = False

    async def make(self) -> None:
        await asyncio.sleep(0)
        if self.refuses:
            raise Unavailable("no brokers")
        self.made += 1
        self.add()

    def add(self, **config: str) -> None:
        add_topic(self.host, OFFSETS_TOPIC, TOPIC_ID, PARTITIONS, cleanup_policy="compact", **config)


class Coordinated:
    def __init__(self, groups: GroupCoordinator, cluster: Cluster, clock: SetClock) -> None:
        self.groups = groups
        self.cluster = cluster
        self.clock = clock

    async def commit(self, group_id: str, offset: int, producer: Producer | None = None) -> Answer:
        topics = [TopicCommit("orders", None, in_columns((0, offset)))]
        request = Commit(group_id, "", -1, None, topics, 8)

        def decide(shard: Any, token: Any, now_ms: int) -> Effects:
            if producer is None:
                return shard.offsets.commit(request, token, now_ms)  # type: ignore[no-any-return]
            return shard.offsets.commit_in_transaction(request, producer, token, now_ms)  # type: ignore[no-any-return]

        return await self.groups.submit(group_id, decide)

    async def fetch(self, group_id: str, *, stable: bool = False) -> int:
        asked = Fetch(group_id, None, -1, [TopicPartitions("orders", None, [0])], stable)
        answer = (await self.groups.look(group_id)).offsets.fetch(asked)
        part = answer["topics"][0]["partitions"][0]
        return int(part["committed_offset"])


@asynccontextmanager
async def coordinated(
    data: Path,
    *,
    with_topic: bool = True,
    config: GroupConfig | None = None,
) -> AsyncIterator[Coordinated]:
    clock = SetClock()
    cluster = Cluster(data, clock)
    if with_topic:
        cluster.add()
    cluster.host.recover()
    told = config or GroupConfig()
    groups = Coordinators(cluster.host, clock).groups(cluster.make, lambda: told)
    try:
        yield Coordinated(groups, cluster, clock)
    finally:
        groups.close()
        cluster.host.close()


@pytest.mark.parametrize(
    ("text", "hashed"), [("", 0), ("a", 97), ("orders", -1008770331), ("grüße", 98768023), ("😀", 1772899)]
)
def test_the_hash_is_javas(text: str, hashed: int) -> None:
    """The numbers are a JVM's."""
    assert java_hash(text) == hashed % (1 << 32)


def test_the_sign_is_turned_and_not_masked() -> None:
    assert java_hash("orders") >= 1 << 31, "negative in Java"
    assert partition_for("orders", 50) == 1008770331 % 50  # its hash is less than 0
    assert partition_for("clerks", 50) == 2  # as a Kafka broker says
    assert java_hash("polygenelubricants") == 1 << 31
    assert partition_for("polygenelubricants", 7) == 0


async def test_the_topic_is_made_when_it_is_first_needed_and_once(tmp_path: Path) -> None:
    async with coordinated(tmp_path, with_topic=False) as broker:
        with pytest.raises(CoordinatorNotAvailable):
            await broker.fetch("g")
        assert await broker.groups.ask_all(lambda shard: shard) == []
        await broker.groups.load()
        await broker.commit("g", 5)
        assert await broker.groups.ensure_topic() == PARTITIONS
        assert broker.cluster.made == 1
        assert await broker.fetch("g") == 5


async def test_a_topic_that_cannot_be_made(tmp_path: Path) -> None:
    async with coordinated(tmp_path, with_topic=False) as broker:
        broker.cluster.refuses = True
        with pytest.raises(CoordinatorNotAvailable):
            await broker.commit("g", 5)


async def test_every_offset_is_there_after_a_restart(tmp_path: Path) -> None:
    groups = [f"group-{number}" for number in range(20)]
    async with coordinated(tmp_path) as broker:
        for number, group_id in enumerate(groups):
            await broker.commit(group_id, number)
    async with coordinated(tmp_path) as broker:
        await broker.groups.load()
        for number, group_id in enumerate(groups):
            assert await broker.fetch(group_id) == number
        shards = await broker.groups.ask_all(lambda shard: shard)
        assert sorted(group_id for shard in shards for group_id in shard.groups) == sorted(groups)


async def test_whoever_asks_while_a_shard_is_read_waits_for_it(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        for number in range(2000):
            await broker.commit(f"group-{number}", number)
    async with coordinated(tmp_path) as broker:
        answers = await asyncio.gather(*(broker.fetch(f"group-{number}") for number in range(50)))
        assert answers == list(range(50))


async def test_shards_that_are_read_take_turns_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is gone leaves many to the others: each part takes long, and clients are to be heard."""
    groups = [f"group-{number}" for number in range(PARTITIONS * 4)]
    async with coordinated(tmp_path) as broker:
        for group_id in groups:
            for offset in range(5):
                await broker.commit(group_id, offset)
    read = turns = most = 0
    replay_from = runtime.replay_from

    def counted(*args: Any) -> int:
        nonlocal read
        read += 1
        return replay_from(*args)

    monkeypatch.setattr(replaying, "_READ_BYTES", 100)
    monkeypatch.setattr(runtime, "replay_from", counted)
    async with coordinated(tmp_path) as broker:
        looking = [asyncio.ensure_future(broker.groups.look(group_id)) for group_id in groups]
        while not all(one.done() for one in looking):
            before = read
            await asyncio.sleep(0)
            turns, most = turns + 1, max(most, read - before)
    assert read > 3 * PARTITIONS
    assert most == 1
    assert turns < 4 * read


async def test_whoever_cannot_wait_is_answered_at_once_or_told(tmp_path: Path) -> None:
    def echo(shard: GroupShard, token: Token, now_ms: int) -> Effects:
        effects = Effects()
        effects.reply(token, {"heard": True})
        return effects

    async with coordinated(tmp_path, with_topic=False) as broker:
        with pytest.raises(CoordinatorNotAvailable):
            broker.groups.submit_now("g", echo)
        await broker.commit("g", 5)
        assert broker.groups.submit_now("g", echo).result() == {"heard": True}
    async with coordinated(tmp_path) as broker:
        with pytest.raises(CoordinatorLoading):
            broker.groups.submit_now("g", echo)
        assert await broker.fetch("g") == 5
        waits = broker.groups.submit_now("g", lambda shard, token, now_ms: Effects())
        assert not waits.done()
        broker.groups.close()
        with pytest.raises(NotCoordinator):
            await waits


async def test_partitions_that_nobody_uses_stay_closed(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        await broker.commit("g", 5)
    async with coordinated(tmp_path) as broker:
        await broker.groups.load()
        assert len(await broker.groups.ask_all(lambda shard: shard)) == 1
        assert len(list(broker.cluster.host.open_replicas())) == 1


async def test_a_record_that_cannot_be_read_does_not_take_the_others_along(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        await broker.commit("g", 5)
        partition = broker.cluster.host.partition(OFFSETS_TOPIC, broker.groups.shard_of("g"))
        for key in (b"\0\1", b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\2\0\1g", b"\0\3", b"\0\5\0\1g"):
            partition.append_own(memoryview(build_batch([Record(0, 1, key, b"\0\1")])))
        partition.append_own(memoryview(build_batch([Record(0, 1, None, b"\0\1")])))
        await broker.commit("g", 6)
    async with coordinated(tmp_path) as broker:
        assert await broker.fetch("g") == 6


async def test_pending_offsets_and_how_they_end_survive_a_restart(tmp_path: Path) -> None:
    producer = Producer(9, 0)
    async with coordinated(tmp_path) as broker:
        await broker.commit("g", 5)
        await broker.commit("g", 7, producer)
        index = broker.groups.shard_of("g")
        assert await broker.fetch("g") == 5
    async with coordinated(tmp_path) as broker:
        assert (await broker.fetch("g"), await broker.fetch("g", stable=True)) == (5, -1)
        broker.groups.end_transaction(index, producer, 0, commit=True)
        assert await broker.fetch("g", stable=True) == 7
        await broker.commit("g", 9, producer)
    async with coordinated(tmp_path) as broker:
        # Not asked for yet: the end is written all the same, and found when the shard is read.
        broker.groups.end_transaction(index, producer, 0, commit=False)
        assert await broker.fetch("g", stable=True) == 7


async def test_a_producer_that_was_fenced_commits_no_more(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        await broker.commit("g", 5, Producer(9, 1))
        with pytest.raises(InvalidProducerEpoch):
            await broker.commit("g", 6, Producer(9, 0))
        index = broker.groups.shard_of("g")
        with pytest.raises(InvalidProducerEpoch):
            broker.groups.end_transaction(index, Producer(9, 0), 0, commit=True)


def _full_disk(broker: Coordinated, patch: pytest.MonkeyPatch, refused: Callable[[int], object] = id) -> None:
    """`refused` is told of each append that is."""

    def full(*_: object) -> int:
        refused(1)
        raise DiskFull("no room")

    partition = broker.cluster.host.partition(OFFSETS_TOPIC, broker.groups.shard_of("g"))
    patch.setattr(type(partition.log), "append", full)


async def test_what_could_not_be_written_did_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinated(tmp_path) as broker:
        await broker.commit("g", 5)
        with monkeypatch.context() as patch:
            _full_disk(broker, patch)
            with pytest.raises(NotCoordinator):
                await broker.commit("g", 6)
        assert await broker.fetch("g") == 5
        await broker.commit("g", 7)
        assert await broker.fetch("g") == 7


async def test_a_disk_that_is_full_is_said_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients ask again, some thousand times per second."""
    async with coordinated(tmp_path) as broker:
        await broker.commit("g", 5)
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "_trouble", Seldom(logging.getLogger("t"), 3600.0))
            _full_disk(broker, patch)
            for offset in range(20):
                with pytest.raises(NotCoordinator):
                    await broker.commit("g", offset)
        assert len(caplog.records) == 1


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_member_that_goes_while_the_disk_is_full_goes_when_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr("anabranch.groups.runtime._RETRY_MS", 5)
    async with coordinated(tmp_path, config=GroupConfig(consumer_session_timeout_ms=20)) as broker:

        async def heartbeat(epoch: int) -> Answer:
            request = Heartbeat("g", "m", epoch, None, None, 1000, frozenset(("orders",)), owned={})
            return await broker.groups.submit(
                "g", lambda shard, token, now_ms: shard.consumer.heartbeat(request, token, now_ms)
            )

        def members() -> int:
            return len(broker.groups.known("g").consumer.describe("g")["members"])

        refused: list[int] = []
        with monkeypatch.context() as patch:
            assert (await heartbeat(0)).get("error_code", 0) == 0
            _full_disk(broker, patch, refused.append)
            if leaves:
                assert (await heartbeat(-1))["error_code"] == ErrorCode.coordinator_not_available
            await until(lambda: len(refused) >= 3)
            assert members() == 1
        await until(lambda: not members())


async def test_nothing_is_answered_from_what_could_not_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is about to stop: what it knows may be known to nobody after that."""

    def bad_block(fd: int) -> None:
        raise OSError(errno.EIO, "bad block")

    async with coordinated(tmp_path, with_topic=False) as broker:
        broker.cluster.add(flush_messages="1")

        async def heartbeat(epoch: int) -> Answer:
            request = Heartbeat("g", "m", epoch, None, None, 1000, frozenset(("orders",)), owned={})
            return await broker.groups.submit(
                "g", lambda shard, token, now_ms: shard.consumer.heartbeat(request, token, now_ms)
            )

        monkeypatch.setattr("os.fdatasync", bad_block)
        first, second = await asyncio.gather(heartbeat(0), heartbeat(1))
        third = await heartbeat(1)
        assert broker.groups.known("g").consumer.describe("g")["members"], "it is in memory"
        codes = [answer.get("error_code", 0) for answer in (first, second, third)]
        assert codes == 3 * [ErrorCode.coordinator_not_available]


async def test_a_decision_that_does_not_fit_one_batch_is_refused(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        offsets = in_columns(*((index, 1) for index in range(300)), metadata="m" * 4000)
        request = Commit("g", "", -1, None, [TopicCommit("orders", None, offsets)], 8)
        with pytest.raises(TooLarge):
            await broker.groups.submit(
                "g", lambda shard, token, now: shard.offsets.commit(request, token, now)
            )


async def test_whoever_waits_is_told_when_the_topic_goes(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        waiting = asyncio.ensure_future(broker.groups.submit("g", lambda shard, token, now_ms: Effects()))
        await asyncio.sleep(0)
        broker.cluster.host.remove_topic(TopicName.from_kafka(OFFSETS_TOPIC))
        broker.cluster.add()
        await broker.commit("g", 1)  # whoever comes next finds the shard gone
        with pytest.raises(NotCoordinator):
            await waiting


async def test_whoever_waits_for_others_is_told_when_the_node_stops(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        waits = asyncio.ensure_future(broker.groups.submit("g", lambda shard, token, now_ms: Effects()))
        await asyncio.sleep(0)
        broker.groups.let_go()
        for late in (waits, broker.groups.submit("g", lambda shard, token, now_ms: Effects())):
            with pytest.raises(NotCoordinator):
                await late
        await broker.commit("g", 5)
        assert await broker.fetch("g") == 5


async def test_offsets_of_deleted_topics_are_forgotten_in_every_shard(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        for number in range(10):
            await broker.commit(f"group-{number}", 5)
    async with coordinated(tmp_path) as broker:
        broker.groups.topics_deleted({"other": UUID(int=8), OFFSETS_TOPIC: UUID(int=9)})
        broker.groups.topics_deleted({"orders": UUID(int=7)})
        for _ in range(100):
            await asyncio.sleep(0)
        assert [await broker.fetch(f"group-{number}") for number in range(10)] == [-1] * 10


LONG_TOPIC, LONG_GROUP = "t" * 200, "g" * 90  # with names like these 4,000 offsets are more than a batch


async def committed_much(broker: Coordinated) -> int:
    """Commit so many offsets, in batches that fit; how many are kept."""

    def commit(partitions: range) -> Any:
        columns = in_columns(*((index, 5) for index in partitions))
        request = Commit(LONG_GROUP, "", -1, None, [TopicCommit(LONG_TOPIC, None, columns)], 8)
        return lambda shard, token, now_ms: shard.offsets.commit(request, token, now_ms)

    for begin in range(0, 4_000, 1_000):
        await broker.groups.submit(LONG_GROUP, commit(range(begin, begin + 1_000)))
    return await kept(broker)


async def kept(broker: Coordinated) -> int:
    return len(list((await broker.groups.look(LONG_GROUP)).offsets.committed(LONG_GROUP)))


async def test_more_offsets_of_a_deleted_topic_than_fit_a_batch(tmp_path: Path) -> None:
    async with coordinated(tmp_path) as broker:
        assert await committed_much(broker) == 4_000
        broker.groups.topics_deleted({LONG_TOPIC: UUID(int=7)})
        for _ in range(20):
            await asyncio.sleep(0)
        assert await kept(broker) == 0
    async with coordinated(tmp_path) as broker:
        assert await kept(broker) == 0


async def test_more_offsets_that_are_too_old_than_fit_a_batch(tmp_path: Path) -> None:
    def expire(shard: GroupShard, token: Token, now_ms: int) -> Effects:
        effects = shard.timeout(("offsets", "expire"), now_ms + 365 * 86_400_000)
        effects.reply(token, {"done": True})
        return effects

    async with coordinated(tmp_path) as broker:
        assert await committed_much(broker) == 4_000
        assert await broker.groups.submit(LONG_GROUP, expire) == {"done": True}
        assert await kept(broker) == 0
        assert LONG_GROUP not in (await broker.groups.look(LONG_GROUP)).groups
    async with coordinated(tmp_path) as broker:
        assert await kept(broker) == 0


@pytest.mark.parametrize("what", ["the group", "its offsets"])
async def test_more_is_deleted_than_fits_a_batch(tmp_path: Path, what: str) -> None:
    def delete(shard: GroupShard, token: Token, now_ms: int) -> Effects:
        if what == "the group":
            return delete_group(shard.groups, shard.offsets, LONG_GROUP, token)
        topic = TopicPartitions(LONG_TOPIC, None, range(4_000))
        return shard.offsets.delete(LONG_GROUP, [topic], token, now_ms)

    async with coordinated(tmp_path) as broker:
        assert await committed_much(broker) == 4_000
        answer = await broker.groups.submit(LONG_GROUP, delete)
        assert not answer.get("error_code")
        assert await kept(broker) == 0
    async with coordinated(tmp_path) as broker:
        assert await kept(broker) == 0
