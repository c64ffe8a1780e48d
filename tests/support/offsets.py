"""A shard of groups on a log that is a list, without an event loop.

    groups = ShardOnAList()
    groups.commit("g", orders=[(0, 5)])                   the answer: {("orders", 0): ErrorCode.none}
    groups.fetch("g", orders=[0])                         {("orders", 0): 5}
    groups.commit("g", orders=[(0, 7)], producer=1)       pending, until `groups.end(1, commit=True)`

`restart` reads the list into a new shard; `compacted` leaves the last record of every key, as compaction
of the topic would.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from anabranch.groups.committing import BROKERS_RETENTION, Commit, TopicCommit
from anabranch.groups.config import GroupConfig
from anabranch.groups.effects import Answer, Effects, KeyValue, Producer
from anabranch.groups.offsets import Fetch, TopicPartitions
from anabranch.groups.parts import NO_SUBSCRIPTIONS, Subscriptions, Surroundings
from anabranch.groups.runtime import batch_of
from anabranch.groups.shard import GroupShard
from anabranch.records.batch import split_batches
from anabranch.records.record import iter_records, payload_of
from anabranch.wire.kafka.offset_commit import OffsetColumns
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.classic import NoTopics

START_MS = 1_700_000_000_000
Offsets = list[tuple[int, int]]
Codes = dict[tuple[str, int], ErrorCode]


class Line(NamedTuple):
    """A record, or the end of a transaction if it has no key."""

    key: bytes | None
    value: bytes | None
    producer_id: int
    commit: bool = False


class ShardOnAList:
    def __init__(self, subscriptions: Subscriptions = NO_SUBSCRIPTIONS, **config: Any) -> None:
        self.config = GroupConfig(**config)
        self.subscriptions = subscriptions
        self.now_ms = START_MS
        self.log: list[Line] = []
        self.timers: dict[Any, int] = {}
        self.restart()

    def restart(self) -> None:
        around = Surroundings(lambda: self.config, NoTopics(), Random(1), subscriptions=self.subscriptions)
        self.shard = GroupShard(around)
        self.timers = {}
        for line in self.log:
            self._replay(line)
        self.carry_out(self.shard.loaded(self.now_ms))

    def compacted(self) -> None:
        last = {line.key: at for at, line in enumerate(self.log) if line.key is not None}
        self.log = [line for at, line in enumerate(self.log) if line.key is None or last[line.key] == at]

    def commit(
        self,
        group_id: str,
        *,
        member_id: str = "",
        epoch: int = -1,
        instance_id: str | None = None,
        version: int = 8,
        retention_ms: int = BROKERS_RETENTION,
        metadata: str | None = "",
        topic_id: UUID | None = None,
        producer: int | None = None,
        **topics: Offsets,
    ) -> Codes:
        wanted = [
            TopicCommit(name, topic_id, in_columns(*offsets, metadata=metadata))
            for name, offsets in topics.items()
        ]
        request = Commit(group_id, member_id, epoch, instance_id, wanted, version, retention_ms)
        offsets = self.shard.offsets
        if producer is None:
            answer = self.carry_out(offsets.commit(request, "token", self.now_ms))
        else:
            within = Producer(producer, 0)
            answer = self.carry_out(offsets.commit_in_transaction(request, within, "token", self.now_ms))
        return _codes(answer)

    def end(self, producer_id: int, *, commit: bool) -> None:
        self._write(Line(None, None, producer_id, commit))

    def fetch_whole(
        self,
        group_id: str,
        *,
        member_id: str | None = None,
        epoch: int = -1,
        stable: bool = False,
        everything: bool = False,
        topic_id: UUID | None = None,
        **topics: list[int],
    ) -> Answer:
        wanted = [TopicPartitions(name, topic_id, indexes) for name, indexes in topics.items()]
        return self.shard.offsets.fetch(
            Fetch(group_id, member_id, epoch, None if everything else wanted, stable)
        )

    def fetch(self, group_id: str, **asked: Any) -> dict[tuple[str, int], int | ErrorCode]:
        """Offsets, or why there is none."""
        answer = self.fetch_whole(group_id, **asked)
        assert not answer["error_code"]
        return {
            (topic["name"], part["partition_index"]): part["error_code"] or part["committed_offset"]
            for topic in answer["topics"]
            for part in topic["partitions"]
        }

    def delete(self, group_id: str, **topics: list[int]) -> Answer:
        wanted = [TopicPartitions(name, None, indexes) for name, indexes in topics.items()]
        answer = self.carry_out(self.shard.offsets.delete(group_id, wanted, "token", self.now_ms))
        assert answer is not None
        return answer

    def delete_codes(self, group_id: str, **topics: list[int]) -> Codes:
        return _codes(self.delete(group_id, **topics))

    def pass_ms(self, ms: int) -> None:
        """Time passes; what is due comes in order."""
        end = self.now_ms + ms
        while self.timers and min(self.timers.values()) <= end:
            timer = min(self.timers, key=lambda timer: self.timers[timer])
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.carry_out(self.shard.timeout(timer, self.now_ms))
        self.now_ms = end

    def carry_out(self, effects: Effects) -> Answer | None:
        producer_id = -1 if effects.producer is None else effects.producer.producer_id
        lines = [Line(record.key, record.value, producer_id) for record in records_of(effects)]
        if effects.replay is None:
            for line in lines:
                self._write(line)
        else:  # which a restart then holds against the records
            self.log += lines
            effects.replay()
        for change in effects.then:
            change()
        for timer, time_ms in effects.timers.items():
            self.timers.pop(timer, None)
            if time_ms is not None:
                self.timers[timer] = time_ms
        return dict(effects.replies).get("token")

    def _write(self, line: Line) -> None:
        self.log.append(line)
        self._replay(line)

    def _replay(self, line: Line) -> None:
        if line.key is None:
            self.shard.transaction_ended(line.producer_id, commit=line.commit)
        elif line.producer_id >= 0:
            self.shard.replay_pending(line.producer_id, line.key, line.value)
        else:
            self.shard.replay(line.key, line.value)


def records_of(effects: Effects) -> Sequence[KeyValue]:
    """The records, those that are encoded already read again."""
    if effects.encoded is None:
        return effects.records
    ((header, whole),) = split_batches(batch_of(effects, START_MS))
    read = [
        KeyValue(bytes(record.key or b""), record.value)
        for record in iter_records(header, payload_of(header, whole, 1 << 20))
    ]
    assert len(read) == header.count == effects.encoded.count
    return read


def in_columns(*offsets: tuple[int, int], metadata: str | None = "") -> OffsetColumns:
    """What a request says that commits these, each a partition and an offset."""
    size = len(offsets)
    partitions, values = [index for index, _ in offsets], [offset for _, offset in offsets]
    return OffsetColumns(partitions, values, [3] * size, [metadata] * size)


def _codes(answer: Answer | None) -> Codes:
    assert answer is not None
    assert not answer.get("error_code")
    return {
        (topic["name"], part["partition_index"]): part["error_code"]
        for topic in answer["topics"]
        for part in topic["partitions"]
    }
