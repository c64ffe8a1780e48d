"""Transactions over two nodes: coordinators, groups and partitions apart, moved, cut off and deleted.

The transactional id's coordinator is on the first node.  One of the partitions that take part is there, too;
the other, and the group whose offsets are committed, are on the second.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from anabranch.base.errors import UnknownTopic
from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.aio import AsyncClient
from anabranch.client.destinations import ANY, Broker, Coordinator, Leader, TopicPartition
from anabranch.client.requests import FIND_COORDINATOR, LIST_TRANSACTIONS, WRITE_TXN_MARKERS, Request
from anabranch.cluster.topics import NewTopic
from anabranch.groups.coordinator import OFFSETS_TOPIC, partition_for
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.groups.transaction_records import State
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import HEADER_SIZE
from anabranch.records.record import iter_records
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import batches
from tests.support.transactions_over_wire import Refused, WireProducer, committed_offset
from tests.support.two_nodes import BOTH, TwoNodes, two_nodes
from tests.support.waiting import until

ORDERS = TopicName.from_kafka("orders")
NEAR, FAR = ("orders", 0), ("orders", 1)
FIRST, SECOND = BOTH
TRANSACTIONS_TOPIC, GROUPS_TOPIC = TopicName.from_kafka(STATE_TOPIC), TopicName.from_kafka(OFFSETS_TOPIC)
SETTINGS = {
    "transaction_state_log_num_partitions": "4",
    "transaction_state_log_replication_factor": "2",
    "offsets_topic_num_partitions": "4",
    "offsets_topic_replication_factor": "2",
}
SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
MOVES = 400 if SOAK else 40
SEED = int(os.environ.get("ANABRANCH_SEED", "15"))
PROTOCOLS = pytest.mark.parametrize("second", [False, True], ids=["first", "second"])


class Spread:
    """Two nodes and a transactional producer, everything where it is wanted."""

    def __init__(self, nodes: TwoNodes, client: AsyncClient, *, second: bool) -> None:
        self.nodes = nodes
        self.client = client
        self.producer = WireProducer(client, "copy", second=second)
        self.group = "g"

    @property
    def shard(self) -> int:
        return partition_for(self.producer.id, 4)

    def choose_id(self) -> None:
        """One whose coordinator is where it is wanted, since it cannot be moved there."""
        number = 0
        while self.nodes.state(TRANSACTIONS_TOPIC, self.shard).leader != FIRST:
            number += 1
            self.producer.id = f"copy{number}"

    @property
    def group_shard(self) -> int:
        return partition_for(self.group, 4)

    async def put(self, name: TopicName, index: int, leader: BrokerId) -> None:
        if self.nodes.state(name, index).leader != leader:
            await self.nodes.elect(name, index, leader)
        await until(lambda: self.leads(leader, name, index))

    def leads(self, broker: BrokerId, name: TopicName, index: int) -> bool:
        return all(
            node.parts.cluster.image.topics[name].partitions[index].leader == broker
            for node in self.nodes.nodes.values()
        )

    def partition(self, place: tuple[str, int]) -> Partition:
        state = self.nodes.state(TopicName.from_kafka(place[0]), place[1])
        return self.nodes.nodes[state.leader].parts.host.partition(*place)

    async def decided(self, *places: tuple[str, int]) -> None:
        """Nothing is open there any more, and that is safe."""
        for place in places:
            await until(lambda place=place: self.is_decided(place), f"a transaction is open in {place}")

    def is_decided(self, place: tuple[str, int]) -> bool:
        partition = self.partition(place)
        return partition.last_stable == partition.log_end == partition.high_watermark

    def seen(self, place: tuple[str, int]) -> list[str]:
        """What a committed reader sees."""
        partition = self.partition(place)
        log, found = partition.log, []
        part = partition.read(0, 1 << 20, Isolation.COMMITTED, whole_first=True)
        gone = {
            (one.producer_id, one.first_offset): one.last_offset
            for one in partition.aborted(0, Isolation.COMMITTED, part) or ()
        }
        for header, payload in batches(log):
            aborted = any(
                producer == header.producer_id and first <= header.base_offset <= last
                for (producer, first), last in gone.items()
            )
            if header.base_offset < partition.last_stable and not header.is_control and not aborted:
                found += [
                    bytes(one.value or b"").decode() for one in iter_records(header, payload[HEADER_SIZE:])
                ]
        return found


@asynccontextmanager
async def spread(
    folder: Path, *, second: bool, settings: Mapping[str, str] = SETTINGS
) -> AsyncIterator[Spread]:
    async with two_nodes(folder, **settings) as nodes:
        client = nodes.client("c")
        try:
            here = Spread(nodes, client, second=second)
            await nodes.create(ORDERS, 2)
            for key, kind in ((here.producer.id, 1), (here.group, 0)):
                values = {"key": key, "key_type": kind, "coordinator_keys": [key]}
                await client.send(ANY, Request(FIND_COORDINATOR, values), 60)
            await until(
                lambda: all(
                    {TRANSACTIONS_TOPIC, GROUPS_TOPIC} <= set(node.parts.cluster.image.topics)
                    for node in nodes.nodes.values()
                )
            )
            if settings is SETTINGS:
                await here.put(TRANSACTIONS_TOPIC, here.shard, FIRST)
            else:
                here.choose_id()
            await here.put(GROUPS_TOPIC, here.group_shard, SECOND)
            await here.put(ORDERS, NEAR[1], FIRST)
            await here.put(ORDERS, FAR[1], SECOND)
            yield here
        finally:
            client.close()


@PROTOCOLS
async def test_markers_and_offsets_go_to_other_nodes(tmp_path: Path, second: bool) -> None:
    async with spread(tmp_path, second=second) as here:
        producer = here.producer
        await producer.introduce()
        for number, commit in enumerate((True, False, True)):
            await producer.write(NEAR, f"near.{number}")
            await producer.write(FAR, f"far.{number}")
            await producer.commit_offset(here.group, NEAR, number)
            await producer.end(commit=commit)
        await here.decided(NEAR, FAR)
        assert (here.seen(NEAR), here.seen(FAR)) == (["near.0", "near.2"], ["far.0", "far.2"])
        assert await committed_offset(here.client, here.group, NEAR) == 2
        await producer.write(FAR, "more")
        await producer.commit_offset(here.group, NEAR, 9)
        await producer.end(commit=False)
        await here.decided(FAR)
        assert await committed_offset(here.client, here.group, NEAR) == 2


async def test_what_is_not_in_the_transaction_is_refused(tmp_path: Path) -> None:
    """Where the coordinator that knows so is on another node."""
    async with spread(tmp_path, second=False) as here:
        producer = here.producer
        await producer.introduce()
        for place in (NEAR, FAR):
            with pytest.raises(Refused, match="transaction_abortable"):
                await producer.write(place, "x", join=False)
        with pytest.raises(Refused, match="transaction_abortable"):
            await producer.commit_offset(here.group, NEAR, 5, join=False)
        await producer.write(NEAR, "a")
        with pytest.raises(Refused, match="transaction_abortable"):
            await producer.write(FAR, "x", join=False)
        await producer.end(commit=True)
        await here.decided(NEAR, FAR)
        assert (here.seen(NEAR), here.seen(FAR)) == (["a"], [])


@PROTOCOLS
async def test_a_successor_fences_over_nodes(tmp_path: Path, second: bool) -> None:
    async with spread(tmp_path, second=second) as here:
        await here.producer.introduce()
        await here.producer.write(FAR, "lost")
        successor = WireProducer(here.client, here.producer.id, second=second)
        await successor.introduce()
        await here.decided(FAR)
        with pytest.raises(Refused, match=r"producer_fenced|invalid_producer_epoch"):
            await here.producer.write(FAR, "late", join=False)
        await successor.write(FAR, "b")
        await successor.end(commit=True)
        await here.decided(FAR)
        assert here.seen(FAR) == ["b"]


@PROTOCOLS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_whoever_leads_the_coordinators_shard_ends_it(
    tmp_path: Path, second: bool, commit: bool
) -> None:
    """Meanwhile everything moves to and fro."""
    async with spread(tmp_path, second=second) as here:
        producer = here.producer
        await producer.introduce()
        await producer.write(NEAR, "a")
        await producer.write(FAR, "b")
        await producer.commit_offset(here.group, NEAR, 7)
        ending = asyncio.ensure_future(producer.end(commit=commit))
        for _ in range(3):
            await here.put(TRANSACTIONS_TOPIC, here.shard, SECOND)
            await here.put(ORDERS, FAR[1], FIRST)
            await here.put(TRANSACTIONS_TOPIC, here.shard, FIRST)
            await here.put(ORDERS, FAR[1], SECOND)
            await here.put(GROUPS_TOPIC, here.group_shard, FIRST)
            await here.put(GROUPS_TOPIC, here.group_shard, SECOND)
        await ending
        await here.decided(NEAR, FAR)
        expected = (["a"], ["b"]) if commit else ([], [])
        assert (here.seen(NEAR), here.seen(FAR)) == expected
        assert await committed_offset(here.client, here.group, NEAR) == (7 if commit else -1)
        await producer.write(FAR, "next")
        await producer.end(commit=True)
        await here.decided(FAR)
        assert here.seen(FAR) == [*expected[1], "next"]


@pytest.mark.parametrize("seed", [SEED])
async def test_transactions_are_whole_while_everything_moves(tmp_path: Path, seed: int) -> None:
    """Partitions, the coordinators of both and of groups; a transaction is there as a whole or not at all."""
    chance = Random(seed)
    async with spread(tmp_path, second=False) as here:
        clients = [here.nodes.client("c") for _ in range(4)]
        works = [Work(WireProducer(client, f"p{n}", second=n % 2 == 1)) for n, client in enumerate(clients)]
        tasks = [asyncio.create_task(work.run()) for work in works]
        shards = [partition_for(work.producer.id, 4) for work in works]
        places = [(name, shard) for name in (TRANSACTIONS_TOPIC, GROUPS_TOPIC) for shard in shards]
        places += [(ORDERS, 0), (ORDERS, 1)]
        try:
            for _ in range(MOVES):
                name, index = chance.choice(places)
                leader = here.nodes.state(name, index).leader
                await here.nodes.elect(name, index, FIRST if leader == SECOND else SECOND)
                ended = sum(work.ended for work in works)
                if chance.random() < 0.5:
                    await until(lambda ended=ended: sum(work.ended for work in works) > ended)
            for work in works:
                work.is_over = True
            await asyncio.wait_for(asyncio.gather(*tasks), 120)
        finally:
            for task in tasks:
                task.cancel()
            for client in clients:
                client.close()
        await here.decided(NEAR, FAR)
        for work in works:
            for place in (NEAR, FAR):
                mine = [value for value in here.seen(place) if value.startswith(f"{work.producer.id}.")]
                assert mine == work.committed
            assert await committed_offset(here.client, work.producer.id, NEAR) == work.offset


class Work:
    """Transactions over both partitions and a group, every third aborted, until it is over."""

    def __init__(self, producer: WireProducer) -> None:
        self.producer = producer
        self.is_over = False
        self.ended = 0
        self.committed: list[str] = []
        self.offset = -1

    async def run(self) -> None:
        producer = self.producer
        await producer.introduce()
        while not self.is_over:
            number = self.ended
            value, commit = f"{producer.id}.{number}", number % 3 != 2
            for place in (NEAR, FAR):
                await producer.write(place, value)
            await producer.commit_offset(producer.id, NEAR, number)
            await producer.end(commit=commit)
            self.ended += 1
            if commit:
                self.committed.append(value)
                self.offset = number


@PROTOCOLS
async def test_an_end_is_answered_though_a_leader_cannot_be_reached(tmp_path: Path, second: bool) -> None:
    """The marker comes when it can."""
    alone = SETTINGS | {"transaction_state_log_replication_factor": "1"}
    async with spread(tmp_path, second=second, settings=alone) as here:
        producer, nodes = here.producer, here.nodes
        elsewhere = NewTopic(TopicName.from_kafka("far"), assignments=[(0, [SECOND])])
        await nodes.nodes[FIRST].parts.cluster.create_topic(elsewhere)
        await producer.introduce()
        await producer.write(("far", 0), "a")
        nodes.wire.cut("a", "b")
        await producer.end(commit=True)
        assert here.seen(("far", 0)) == []
        nodes.wire.mend("a", "b")
        await here.decided(("far", 0))
        assert here.seen(("far", 0)) == ["a"]


@PROTOCOLS
async def test_a_topic_that_is_deleted_needs_no_marker(tmp_path: Path, second: bool) -> None:
    async with spread(tmp_path, second=second) as here:
        producer, cluster = here.producer, here.nodes.nodes[FIRST].parts.cluster
        gone = TopicName.from_kafka("gone")
        await here.nodes.create(gone, 2)
        await here.put(gone, 0, SECOND)
        await producer.introduce()
        await producer.write(FAR, "a")
        await producer.write(("gone", 0), "x")
        await cluster.delete_topic(gone)
        await producer.end(commit=True)
        await here.decided(FAR)
        coordinator = here.nodes.nodes[FIRST].parts.transactions
        await until(lambda: completed(coordinator.find(producer.id)))
        with pytest.raises(UnknownTopic):
            here.nodes.nodes[FIRST].parts.host.partition("gone", 0)
        await producer.write(FAR, "b")
        await producer.end(commit=True)
        await here.decided(FAR)
        assert here.seen(FAR) == ["a", "b"]


def completed(found: object) -> bool:
    return getattr(found, "state", None) is State.COMPLETE_COMMIT


async def test_an_old_coordinator_is_fenced(tmp_path: Path) -> None:
    async with spread(tmp_path, second=False) as here:
        producer = here.producer
        await producer.introduce()
        await here.put(TRANSACTIONS_TOPIC, here.shard, SECOND)
        await here.put(TRANSACTIONS_TOPIC, here.shard, FIRST)
        await producer.write(FAR, "a")
        await producer.end(commit=True)
        await here.decided(FAR)
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": FAR[0], "partition_indexes": [FAR[1]]}],
        }
        request = Request(WRITE_TXN_MARKERS, {"markers": [marker]}, newest=1)
        answer = await here.client.send(Leader(TopicPartition(*FAR)), request)
        assert list(request.codes(answer)) == [ErrorCode.transaction_coordinator_fenced]


async def test_every_broker_names_the_same_coordinators(tmp_path: Path) -> None:
    async with spread(tmp_path, second=False) as here:
        await here.producer.introduce()
        brokers = [Broker(id) for id in BOTH]
        for kind, key, leader in ((1, here.producer.id, FIRST), (0, here.group, SECOND)):
            values = {"key": key, "key_type": kind, "coordinator_keys": [key]}
            answers = [await here.client.send(one, Request(FIND_COORDINATOR, values)) for one in brokers]
            assert [answer.coordinators[0].node_id for answer in answers] == [leader, leader]
            found = await here.client.send(Coordinator(kind, key), Request(FIND_COORDINATOR, values))
            assert found.coordinators[0].node_id == leader
        values = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        values |= {"transactional_id_pattern": None}
        listed = [await here.client.send(one, Request(LIST_TRANSACTIONS, values)) for one in brokers]
        assert [[one.transactional_id for one in answer.transaction_states] for answer in listed] == [
            [here.producer.id],
            [],
        ]
