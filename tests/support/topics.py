"""Topics on real partitions in a folder, with positions in memory and a catalog that is told what to say.

    bench = Bench(folder)
    topic = await bench.open("orders", deduplication=True)
    producer = await bench.producer(topic, "p")
    bench.send(topic, producer, 0, 1, 2)

`restart` lets everything go, saved or not, and opens the folder again.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from anabranch.base.disk import DirectDisk
from anabranch.base.errors import NotOwner
from anabranch.base.executors import thread_pool
from anabranch.base.ids import TopicName, split_partition
from anabranch.groups.transaction_ids import TxnId
from anabranch.log.cleaner import Message
from anabranch.log.compaction_view import ViewJob
from anabranch.log.config import LogConfig
from anabranch.log.config_broker import CleanerConfig
from anabranch.meta.image import AnyTopic as AnyTopicImage
from anabranch.meta.image import Located, NonPersistentImage
from anabranch.meta.policies import NamespacePolicies
from anabranch.meta.policy_defaults import PolicyDefaults
from anabranch.meta.policy_upkeep import PolicyUpkeep
from anabranch.meta.rules import Rules, rules_of
from anabranch.partition.folders import partition_folder
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from anabranch.subscriptions.channel import Delivery
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.durable import (
    ChunkChanges,
    CursorName,
    GroupInUse,
    StoredSubscription,
    SubscriptionDocument,
)
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.positions import Positions
from anabranch.topics.compacting import Compactor
from anabranch.topics.producer import AccessMode, Producer
from anabranch.topics.publish import Send
from anabranch.topics.registry import AnyTopic, Topics
from anabranch.topics.subscribing import Wanted
from anabranch.topics.surroundings import Surroundings
from tests.support.compaction import view_worker_here
from tests.support.hosts import a_host
from tests.support.images import topic_image
from tests.support.logs import SetClock

DEFAULT_RULES = rules_of(PolicyDefaults(), NamespacePolicies())
_ids = count(1)


class MemoryStore:
    """What `PositionStore` and `SnapshotStore` promise, as long as this object lives."""

    def __init__(self) -> None:
        self.documents: dict[CursorName, SubscriptionDocument] = {}
        self.positions: dict[CursorName, int] = {}
        self.chunks: dict[CursorName, dict[int, bytes]] = {}
        self.floors: dict[CursorName, int | None] = {}
        self.snapshots: dict[tuple[str, int], bytes] = {}

    async def of_topic(self, topic: str, partition: int) -> dict[str, StoredSubscription]:
        return {
            name.subscription: StoredSubscription(
                document, self.positions[name], True, self.floors.get(name), dict(self.chunks.get(name, {}))
            )
            for name, document in self.documents.items()
            if name[1:] == (topic, partition)
        }

    async def position(self, name: CursorName) -> int | None:
        return self.positions.get(name)

    async def write_document(self, name: CursorName, document: SubscriptionDocument, *, new: bool) -> None:
        self.documents[name] = document

    async def claim(self, name: CursorName) -> None: ...

    async def release(self, name: CursorName) -> None: ...

    async def write_chunks(self, changes: Sequence[ChunkChanges]) -> None:
        for change in changes:
            chunks = self.chunks.setdefault(change.name, {})
            chunks.update(change.put)
            for chunk in change.drop:
                chunks.pop(chunk, None)
            self.floors[change.name] = change.floor

    async def write_positions(self, positions: Mapping[CursorName, int]) -> dict[CursorName, GroupInUse]:
        self.positions.update(positions)
        return {}

    async def delete(self, name: CursorName) -> None:
        for kept in (self.documents, self.positions, self.chunks, self.floors):
            kept.pop(name, None)  # type: ignore[attr-defined]

    def shard_of(self, subscription: str) -> int:
        return 0

    async def snapshot_of(self, topic: str, partition: int) -> bytes | None:
        return self.snapshots.get((topic, partition))

    async def write_snapshot(self, topic: str, partition: int, snapshot: bytes | None) -> None:
        if snapshot is None:
            self.snapshots.pop((topic, partition), None)
        else:
            self.snapshots[(topic, partition)] = snapshot


class MemoryPendingAcks:
    """What `PendingAckStore` promises, likewise."""

    def __init__(self) -> None:
        self.kept: dict[CursorName, dict[TxnId, dict[int, bytes]]] = {}

    async def of(self, name: CursorName) -> dict[TxnId, dict[int, bytes]]:
        return {txn: dict(acks) for txn, acks in self.kept.get(name, {}).items()}

    async def write(self, name: CursorName, txn: TxnId, number: int, ack: bytes) -> None:
        self.kept.setdefault(name, {}).setdefault(txn, {})[number] = ack

    async def drop(self, name: CursorName, txn: TxnId) -> None:
        self.kept.get(name, {}).pop(txn, None)


@dataclass
class Written:
    """What the cluster has written down about a topic."""

    name: TopicName
    id: UUID
    partition_count: int = 1
    is_partitioned: bool = False
    created_ms: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    terminated: dict[int, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    rules: Rules = DEFAULT_RULES

    @property
    def image(self) -> AnyTopicImage:
        return NonPersistentImage(
            self.name,
            self.partition_count,
            self.is_partitioned,
            self.created_ms,
            properties=self.properties,
            epochs=self.epochs,
            terminated=self.terminated,
        )


class FakeCatalog:
    def __init__(self, bench: "Bench") -> None:
        self._bench = bench

    def locate(self, name: TopicName) -> Located | None:
        whole, index = split_partition(name)
        found = self._bench.written.get(whole)
        if found is not None and found.is_partitioned and index is not None:
            return Located(found.image, index)
        found = self._bench.written.get(name)
        return None if found is None or found.is_partitioned else Located(found.image, 0)

    def rules(self, name: TopicName) -> Rules:
        return self._bench.written[name].rules

    async def store_epoch(self, name: TopicName, index: int, epoch: int) -> None:
        self._bench.written[name].epochs[index] = epoch

    async def store_terminated(self, name: TopicName, index: int, end: int) -> None:
        self._bench.written[name].terminated[index] = end

    async def delete(self, name: TopicName) -> None:
        del self._bench.written[name]
        self._bench.topics.deleted(name)
        if name.is_persistent:
            self._bench.host.remove_topic(name)


class Line:
    """A connection: what topics and subscriptions say to its client."""

    def __init__(self) -> None:
        self.closed: list[Producer] = []
        self.waiting: list[Producer] = []
        self.alive = True
        self.writable = True
        self.received: list[Delivery] = []
        self.active: list[bool] = []
        self.ended: list[Consumer] = []
        self.disconnected: list[Consumer] = []

    def producer_waits(self, producer: Producer) -> None:
        self.waiting.append(producer)

    def close_producer(self, producer: Producer) -> None:
        self.closed.append(producer)

    async def is_alive(self) -> bool:
        return self.alive

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        self.received += deliveries

    def is_writable(self) -> bool:
        return self.writable

    def active_changed(self, consumer: Consumer, is_active: bool) -> None:
        self.active.append(is_active)

    def reached_end(self, consumer: Consumer) -> None:
        self.ended.append(consumer)

    def disconnect(self, consumer: Consumer) -> None:
        self.disconnected.append(consumer)

    @property
    def offsets(self) -> list[int]:
        return [delivery.entry.offset for delivery in self.received]


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SetClock()
        self.store = MemoryStore()
        self.pending_acks = MemoryPendingAcks()
        self.written: dict[TopicName, Written] = {}
        self.upkeep = PolicyUpkeep()
        self.line = Line()
        self.may_compact = asyncio.Event()
        self.may_compact.set()
        self.served_elsewhere: set[TopicName] = set()
        self._start()

    def _start(self) -> None:
        disk = DirectDisk(100)
        self.host = a_host(self.folder, self.clock, disk)
        for name, topic in self.written.items():
            if name.is_persistent:
                self.host.add_topic(topic_image(name, topic.id, topic.partition_count), LogConfig())
        self.host.recover()

        def bounds(topic: str, index: int) -> tuple[int, int]:
            partition = self.host.partition(topic, index)
            return 0 if partition.view is not None else partition.log_start, partition.log_end

        self.positions = Positions(self.store, self.store, bounds)
        self.topics = Topics(
            Surroundings(
                self.clock,
                disk,
                FakeCatalog(self),
                self.positions,
                self.store,
                self.host.partition,
                lambda name, index: partition_folder(self.folder, name, index),
                lambda: self.upkeep,
                "standalone",
                compactor=Compactor(CleanerConfig, self._worker, thread_pool("aside", 2)),
                pending_acks=self.pending_acks,
                check_owner=self._check_owner,
            )
        )

    def _check_owner(self, name: TopicName) -> None:
        if name in self.served_elsewhere:
            raise NotOwner(f"{name.pulsar} is served by broker 2", 2)

    async def _worker(self, job: ViewJob) -> AsyncGenerator[Message, None]:
        """As `run_worker`, in this process and only once it may."""
        await self.may_compact.wait()
        async for message in view_worker_here(job):
            yield message

    async def restart(self, *, clean: bool = True) -> None:
        if clean:
            await self.topics.stop()
        self.host.close(clean=clean)
        self._start()

    def add(self, name: str, partitions: int | None = None, **config: Any) -> TopicName:
        """A topic in the cluster."""
        topic = TopicName.from_pulsar(name)
        written = Written(topic, UUID(int=next(_ids)), partitions or 1, partitions is not None)
        written.created_ms = self.clock.now_ms()
        self.written[topic] = written
        if topic.is_persistent:
            self.host.add_topic(topic_image(topic, written.id, written.partition_count), LogConfig(**config))
        return topic

    def rule(self, name: str, **rules: Any) -> None:
        topic = self.written[TopicName.from_pulsar(name)]
        topic.rules = msgspec.structs.replace(topic.rules, **rules)
        self.topics.topic_changed(topic.name)

    async def open(self, name: str, **rules: Any) -> Any:
        topic = TopicName.from_pulsar(name)
        if self.topics._around.catalog.locate(topic) is None:
            self.add(name)
        if rules:
            self.rule(name, **rules)
        opened: AnyTopic = await self.topics.open(topic)
        return opened

    async def producer(
        self, topic: AnyTopic, name: str = "p", mode: AccessMode = AccessMode.SHARED, **options: Any
    ) -> Producer:
        producer = self.new_producer(name, mode, **options)
        await topic.add_producer(producer)
        return producer

    def new_producer(self, name: str, mode: AccessMode = AccessMode.SHARED, **options: Any) -> Producer:
        line = options.pop("line", None) or self.line
        return Producer(options.pop("id", next(_ids)), name, line, access_mode=mode, **options)

    def consumer(self, name: str = "", **options: Any) -> Consumer:
        line = options.pop("line", None) or Line()
        id = next(_ids)
        return Consumer(id, name or f"c{id}", line, **options)


def wanted(
    subscription: str = "s", kind: SubscriptionKind = SubscriptionKind.EXCLUSIVE, **fields: Any
) -> Wanted:
    said = {
        "is_durable": True,
        "start": None,
        "from_earliest": True,
        "rollback_s": 0,
        "properties": {},
        "may_create": True,
    } | fields
    return Wanted(subscription, kind, **said)


def send(sequence_id: int, messages: int = 1, *, producer: str = "p", size: int = 10, **fields: Any) -> Send:
    """One entry as the server gives it to a topic; `fields` are of its metadata."""
    said: dict[str, Any] = {
        "producer_name": producer,
        "sequence_id": sequence_id,
        "publish_time": 1_000,
    } | fields
    if messages > 1:
        said["num_messages_in_batch"] = messages
    metadata = MessageMetadata(**said).SerializeToString()
    payload = len(metadata).to_bytes(4, "big") + metadata + b"x" * size
    chunks = metadata_chunks(said)
    return Send(
        sequence_id,
        max(sequence_id, said.get("highest_sequence_id", 0)),
        messages,
        said["publish_time"],
        memoryview(payload),
        chunks is not None and chunks[0] < chunks[1] - 1,
        chunks is not None,
        said.get("deliver_at_time", 0),
    )


def metadata_chunks(said: Mapping[str, Any]) -> tuple[int, int] | None:
    if "num_chunks_from_msg" not in said:
        return None
    return said["chunk_id"], said["num_chunks_from_msg"]
