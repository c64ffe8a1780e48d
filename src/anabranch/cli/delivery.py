"""Delivery of what `anabranch produce` reads: records in batches to partitions, and what became of them.

    records ──> a batch per partition, until it is full, or there is nothing to read now (`catch_up`)
            ──> the producer, which has five on their way; more make us wait
            ──> settled: stored at these offsets, or refused

A record with a key goes where the CRC-32 of the key says, as librdkafka's do; those without go to one
partition after the other, batch by batch.  What is refused (too large, or for a partition that is not there)
is counted, and the others are sent.  When the broker has not taken a batch in all the time it was given, the
next would do no better: `is_hopeless`.
"""

import random
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anabranch.base.errors import AnabranchError, TooLarge, Unavailable, UnknownTopic
from anabranch.cli.client_options import ProduceSettings
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.producer import Producer, Settled
from anabranch.records.batch import read_header
from anabranch.records.builder import build_batch
from anabranch.records.record import Record

_OVERHEAD_BYTES = 70  # of a record that is alone in its batch, about
_MOST_WAITING_BYTES = 64 << 20  # of records that wait for more, of all partitions


class KeyValue(NamedTuple):
    key: bytes | None
    value: bytes | None


class _Batch:
    """Records that wait for more."""

    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.size_bytes = 0


class Delivery:
    def __init__(self, cluster: Cluster, topic: str, how: ProduceSettings, acks: int, codec: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._how = how
        self._codec = codec
        self._producer = Producer(cluster, acks, how.timeout_ms / 1000, self._settled)
        self._is_idempotent = False
        self._has_gap = False  # in the sequence numbers: something was refused
        self._partitions: int | None = None
        self._current = 0  # where records without a key go now
        self._waiting: dict[int, _Batch] = {}
        self._waiting_bytes = 0
        self.partition: int | None = None
        """Where all records go; None is by key."""
        self.headers: Sequence[tuple[str, bytes]] = ()
        self.sent = 0
        self.offsets: dict[int, tuple[int, int]] = {}
        self.failed = 0
        self.first_failure: AnabranchError | None = None
        self.is_hopeless = False

    def identify(self) -> None:
        """From now on nothing is stored twice or out of order."""
        self._is_idempotent = True
        self._producer.identify()

    def send(self, record: KeyValue) -> None:
        size_bytes = _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size_bytes += sum(len(name) + len(value) for name, value in self.headers)
        if size_bytes > self._how.record_bytes:
            self._failed(1, TooLarge(f"a record of {size_bytes} bytes is larger than message.max.bytes"))
            return
        if self._partitions is None:
            self._look_up()
        partition = self._place(record.key)
        if partition is None:
            self._failed(1, UnknownTopic(f"{self._topic} has no partition {self.partition}"))
            return
        batch = self._waiting.get(partition)
        if batch is not None and batch.size_bytes + size_bytes > self._how.batch_bytes:
            self._dispatch(partition)
            batch = None
        if batch is None:
            batch = self._waiting[partition] = _Batch()
        headers = tuple((name.encode(), value) for name, value in self.headers)
        now_ms = time.time_ns() // 1_000_000
        batch.records.append(Record(len(batch.records), now_ms, *record, headers))
        batch.size_bytes += size_bytes
        self._waiting_bytes += size_bytes
        if len(batch.records) >= self._how.batch_records:
            self._dispatch(partition)
        elif self._waiting_bytes > _MOST_WAITING_BYTES:
            self._dispatch_all()

    def catch_up(self) -> None:
        """Wait until every record so far was acknowledged or given up."""
        self._dispatch_all()
        self._try(self._producer.flush)

    def _look_up(self) -> None:
        try:
            self._partitions = len(self._cluster.partitions([self._topic], create=True))
            self._current = random.randrange(self._partitions)
        except (Unavailable, UnknownTopic) as error:
            self._partitions = 0
            self.is_hopeless = isinstance(error, Unavailable)
            self._failed(0, error)

    def _place(self, key: bytes | None) -> int | None:
        """The partition of a record.  None if it is not there."""
        count = self._partitions
        if not count or (self.partition is not None and not 0 <= self.partition < count):
            return None
        if self.partition is not None:
            return self.partition
        return zlib.crc32(key) % count if key else self._current

    def _dispatch_all(self) -> None:
        for partition in list(self._waiting):
            self._dispatch(partition)

    def _dispatch(self, partition: int) -> None:
        """The batch of `partition` goes out."""
        waited = self._waiting.pop(partition)
        self._waiting_bytes -= waited.size_bytes
        if partition == self._current and self._partitions:
            self._current = (partition + 1) % self._partitions
        if self._has_gap:
            self._close_gap()
        if self.is_hopeless:
            self.failed += len(waited.records)
            return
        place = TopicPartition(self._topic, partition)
        writer = self._producer.writer
        batch = build_batch(
            waited.records,
            codec=self._codec,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            base_sequence=self._producer.sequence(place, len(waited.records)),
        )
        self._try(lambda: self._producer.send(place, batch))

    def _close_gap(self) -> None:
        """What follows a refused batch would be out of order: another producer goes on."""
        self._try(self._producer.flush)
        self._try(self._producer.identify)
        self._has_gap = False

    def _try(self, act: Callable[[], None]) -> None:
        if self.is_hopeless:
            return
        try:
            act()
        except Unavailable as error:
            self.is_hopeless = True
            self._failed(sum(map(_count, self._producer.give_up())), error)

    def _settled(self, settled: Settled) -> None:
        count = _count(settled.batch)
        if settled.refusal is not None:
            self._failed(count, settled.refusal)
            self._has_gap = self._is_idempotent
            return
        self.sent += count
        if settled.base_offset >= 0:
            first, last = settled.base_offset, settled.base_offset + count - 1
            at = settled.partition.partition
            known = self.offsets.get(at, (first, last))
            self.offsets[at] = (min(known[0], first), max(known[1], last))

    def _failed(self, count: int, error: AnabranchError) -> None:
        self.failed += count
        self.first_failure = self.first_failure or error

    def summary(self, seconds: float) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "sent": self.sent,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "partitions": [
                {"partition": partition, "first": first, "last": last}
                for partition, (first, last) in sorted(self.offsets.items())
            ],
        }


def _count(batch: bytearray) -> int:
    return read_header(batch).count
