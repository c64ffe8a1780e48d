"""A broker's coordinators and partitions without its sockets, to stop, kill and start again.

    node = Transacting(folder)
    me = await node.introduce("copy")                       # a producer id and epoch
    await node.write("copy", me, ("out", 0), "a")           # adds the partition if need be
    await node.end("copy", me, commit=True)
    node.committed("out", 0)                                # ["a"], as a read_committed reader has it

Everything is real; the clock is set by the test, and `look_after` is one round of what `run` does.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

from anabranch.base.disk import DirectDisk, Disk
from anabranch.base.errors import InvalidTransactionState
from anabranch.base.network import FileRange
from anabranch.groups.committing import Commit, TopicCommit
from anabranch.groups.coordinator import OFFSETS_TOPIC
from anabranch.groups.effects import Answer, Producer
from anabranch.groups.offsets import Fetch, TopicPartitions
from anabranch.groups.transaction_config import TransactionConfig
from anabranch.groups.transaction_coordinator import STATE_TOPIC
from anabranch.groups.transaction_records import TopicPartition
from anabranch.partition.partition_log import Isolation
from anabranch.records.batch import split_batches
from anabranch.records.record import iter_records, payload_of
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.coordinators import Coordinators, add_topic
from tests.support.hosts import a_host
from tests.support.logs import SetClock, records
from tests.support.offsets import in_columns

TOPICS = {"out": 2, OFFSETS_TOPIC: 2, STATE_TOPIC: 2}
READ_BYTES = 1 << 24


class Refused(Exception):
    """A request was answered with a code."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


class Transacting:
    def __init__(self, data: Path, disk: Disk | None = None, **config: int) -> None:
        self.data = data
        self.clock = SetClock()
        self.config = TransactionConfig(**config)
        self._next_id = 100
        self._sequences: dict[tuple[Producer, TopicPartition], int] = {}
        self.start(disk)

    # --- life

    def start(self, disk: Disk | None = None) -> None:
        self.host = a_host(self.data, self.clock, disk or DirectDisk())
        for number, (name, count) in enumerate(TOPICS.items()):
            policy = "delete" if name == "out" else "compact"
            add_topic(self.host, name, UUID(int=number + 1), count, cleanup_policy=policy)
        self.host.recover()
        made = Coordinators(self.host, self.clock)
        self.groups = made.groups(self._no_topic)
        self.coordinator = made.transactions(self._no_topic, lambda: self.config, self._new_id, self.groups)

    def kill(self) -> None:
        self.coordinator.close()
        self.groups.close()
        for _, partition in self.host.open_partitions():
            for segment in partition.log.segments:
                segment.close()

    def stop(self) -> None:
        self.coordinator.close()
        self.groups.close()
        self.host.close()

    async def look_after(self) -> None:
        """What `run` does at its start and at each round."""
        await self.coordinator._load_all()
        await self.coordinator._each_shard(self.coordinator._look_after)
        for index, transactional_id in tuple(self.coordinator._unfinished):
            await self.coordinator._finish(index, transactional_id)

    # --- what coordinators ask for

    async def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def _no_topic(self) -> None:
        raise AssertionError("the topics are there")

    # --- what producers do

    async def introduce(
        self, transactional_id: str, known: Producer | None = None, timeout_ms: int = 60_000
    ) -> Producer:
        return _producer(await self.coordinator.initialize(transactional_id, timeout_ms, known))

    async def add(
        self, transactional_id: str, me: Producer, *partitions: TopicPartition, version: int = 0
    ) -> None:
        code = await self.coordinator.add(transactional_id, me, partitions, version)
        if code:
            raise Refused(code)

    async def write(
        self, transactional_id: str, me: Producer, place: TopicPartition, *values: str, version: int = 0
    ) -> None:
        """Add the partition and store a batch, as a well-behaved client does."""
        await self.add(transactional_id, me, place, version=version)
        self.store(transactional_id, me, place, *values)

    def store(self, transactional_id: str, me: Producer, place: TopicPartition, *values: str) -> None:
        """Store a batch if its transaction is open, as Produce does."""
        partition = self.host.partition(*place)
        if not partition.has_open_transaction(*me):
            code = self.coordinator.verify(transactional_id, me, [place])[place]
            if code:
                raise InvalidTransactionState(ErrorCode(code).name)
        sequence = self._sequences.get((me, place), 0)
        batch = records(
            *values,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        partition.append(memoryview(batch), -1)
        self._sequences[(me, place)] = sequence + len(values)

    async def commit_offset(
        self, transactional_id: str, me: Producer, group_id: str, offset: int, version: int = 0
    ) -> None:
        place = (OFFSETS_TOPIC, self.groups.shard_of(group_id))
        await self.add(transactional_id, me, place, version=version)
        topics = [TopicCommit("in", None, in_columns((0, offset)))]
        commit = Commit(group_id, "", -1, None, topics, 3)
        answer = await self.groups.submit(
            group_id,
            lambda shard, token, now_ms: shard.offsets.commit_in_transaction(commit, me, token, now_ms),
        )
        code = answer["topics"][0]["partitions"][0]["error_code"]
        if code:
            raise Refused(code)

    async def end(self, transactional_id: str, me: Producer, *, commit: bool, version: int = 0) -> Producer:
        return _producer(
            await self.coordinator.end(transactional_id, me, commit=commit, client_version=version)
        )

    # --- what readers see

    def committed(self, topic: str, index: int) -> list[str]:
        """What a reader of committed records sees, which leaves out those of the aborted list itself."""
        partition = self.host.partition(topic, index)
        part = partition.read(0, READ_BYTES, Isolation.COMMITTED, whole_first=True)
        listed = partition.aborted(0, Isolation.COMMITTED, part) or ()
        aborted = sorted(listed, key=lambda one: one.first_offset)
        leaving_out: set[int] = set()
        seen: list[str] = []
        for header, batch in self._batches(topic, index, Isolation.COMMITTED):
            while aborted and aborted[0].first_offset <= header.last_offset:
                leaving_out.add(aborted.pop(0).producer_id)
            for record in iter_records(header, payload_of(header, batch, READ_BYTES)):
                if header.is_control:
                    leaving_out.discard(header.producer_id)
                elif header.producer_id not in leaving_out or not header.is_transactional:
                    seen.append(str(record.value or b"", "utf-8"))
        return seen

    def stored(self, topic: str, index: int) -> list[str]:
        """All values that were ever stored, whatever became of them."""
        return [
            str(record.value or b"", "utf-8")
            for header, batch in self._batches(topic, index, Isolation.UNCOMMITTED)
            if not header.is_control
            for record in iter_records(header, payload_of(header, batch, READ_BYTES))
        ]

    def _batches(self, topic: str, index: int, isolation: Isolation) -> list[Any]:
        partition = self.host.partition(topic, index)
        part = partition.read(0, READ_BYTES, isolation, whole_first=True)
        if not isinstance(part, FileRange):
            return []
        return list(split_batches(part.file.pread(part.size, part.position)))

    async def offset(self, group_id: str) -> int:
        """-1 if there is none."""
        shard = await self.groups.look(group_id)
        asked = Fetch(group_id, None, -1, [TopicPartitions("in", None, [0])], require_stable=False)
        found = shard.offsets.fetch(asked)["topics"][0]["partitions"][0]["committed_offset"]
        assert isinstance(found, int)
        return found


def _producer(answer: Answer) -> Producer:
    if answer["error_code"]:
        raise Refused(answer["error_code"])
    return Producer(answer["producer_id"], answer["producer_epoch"])
