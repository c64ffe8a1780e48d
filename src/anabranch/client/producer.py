"""A producer in the thread that writes: batches out, several on their way, each stored once.

    producer = Producer(cluster, acks=-1, timeout_ms=30_000)
    producer.begin("query-7-task-3", 60_000)        a transaction, and nobody else of that name goes on
    producer.join(partitions)                       where it writes, told all at once; else one by one
    producer.send(partition, batch)                 …
    producer.flush()                                everything is stored
    producer.transaction                            who may end it: a name, an id, an epoch
    end_transaction(cluster, transaction, True)     here or in another process

A request has one batch, and requests to a broker are answered in order.  When an answer does not come, or
says that somebody else leads now, what is not acknowledged is sent again, in order; the broker knows sequence
numbers and stores nothing twice.  Without an id (`acks` of 0 or 1) there are no numbers, and a batch may come
twice.
"""

from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

from anabranch.base.errors import AnabranchError, Invalid, Unavailable
from anabranch.client.answers import check, error_name, kind_of
from anabranch.client.blocking import Client, Pending
from anabranch.client.destinations import GROUPS, TRANSACTIONS, Coordinator, Leader, TopicPartition
from anabranch.client.group_offsets import by_topic, check_partitions, offset_items
from anabranch.client.requests import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Request,
)
from anabranch.client.transactions import Transaction, init_producer
from anabranch.wire.kafka.schema import ErrorCode

_MOST_ON_THEIR_WAY = 5  # requests, as Kafka's brokers can tell duplicates among


class Writer(NamedTuple):
    """Who writes a batch: what its header says of the producer."""

    producer_id: int = -1
    producer_epoch: int = -1
    transactional: bool = False


class Settled(NamedTuple):
    """What became of a batch: its base offset (-1 if nobody says), or why it was refused."""

    partition: TopicPartition
    batch: bytearray
    base_offset: int
    refusal: AnabranchError | None = None


def raise_refusal(settled: Settled) -> None:
    if settled.refusal is not None:
        raise settled.refusal


class _Unacknowledged(NamedTuple):
    partition: TopicPartition
    batch: bytearray


class Producer:
    def __init__(
        self,
        client: Client,
        acks: int,
        timeout_s: float,
        on_settled: Callable[[Settled], None] = raise_refusal,
    ) -> None:
        self._client = client
        self._acks = acks
        self._timeout_s = timeout_s
        self._on_settled = on_settled
        self._sequences: dict[TopicPartition, int] = {}
        self._unacknowledged: deque[_Unacknowledged] = deque()
        self._asked: deque[tuple[Pending, _Unacknowledged]] = deque()
        self._joined: set[TopicPartition] = set()
        self.transaction: Transaction | None = None
        self.writer = Writer()

    def identify(self) -> None:
        """An id for a producer that only must not store anything twice when it sends again."""
        found = init_producer(self._client, None, 0)
        self.writer = Writer(found.producer_id, found.producer_epoch)
        self._sequences.clear()

    def begin(self, transactional_id: str, timeout_ms: int) -> None:
        """A transaction of that name.  One that was left open is aborted, and its producer is stopped."""
        self.transaction = init_producer(self._client, transactional_id, timeout_ms)
        self.writer = Writer(self.transaction.producer_id, self.transaction.producer_epoch, True)

    def sequence(self, partition: TopicPartition, records: int) -> int:
        """The number of the next record to `partition`, of `records`.  -1 without an id."""
        if self.writer.producer_id < 0:
            return -1
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + records) & 0x7FFFFFFF
        return first

    def join(self, partitions: Iterable[TopicPartition]) -> None:
        """The transaction, if there is one, writes to `partitions`, too."""
        transaction = self.transaction
        new = [(one, one.partition) for one in partitions if one not in self._joined]
        if transaction is None or not new:
            return
        values = {
            "v3_and_below_transactional_id": transaction.transactional_id,
            "v3_and_below_producer_id": transaction.producer_id,
            "v3_and_below_producer_epoch": transaction.producer_epoch,
            "v3_and_below_topics": by_topic(new, "partitions"),
        }
        to = Coordinator(TRANSACTIONS, transaction.transactional_id)
        answer = self._client.send(to, Request(ADD_PARTITIONS_TO_TXN, values))
        for topic in answer.results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                check(one.partition_error_code, f"{topic.name}-{one.partition_index} in the transaction")
        self._joined.update(one for one, _ in new)

    def send(self, partition: TopicPartition, batch: bytearray) -> None:
        """Send a batch; may wait until an earlier one is stored."""
        self.join((partition,))
        one = _Unacknowledged(partition, batch)
        self._unacknowledged.append(one)
        try:
            while len(self._asked) >= _MOST_ON_THEIR_WAY:
                self._answered()
            self._ask(one)
        except Unavailable:
            self._again()

    def flush(self) -> None:
        """Wait until all that was sent is stored."""
        try:
            while self._asked:
                self._answered()
        except Unavailable:
            self._again()
        assert not self._unacknowledged, "something was neither stored nor refused"

    def give_up(self) -> list[bytearray]:
        """The batches that nobody has acknowledged; they are not sent again."""
        given_up = [one.batch for one in self._unacknowledged]
        self._unacknowledged.clear()
        self.close()
        return given_up

    def _again(self) -> None:
        """Send everything that is not acknowledged, one after the other, until time is up."""

        def once() -> None:
            self.close()
            for one in list(self._unacknowledged):
                self._ask(one)
                while self._asked:
                    self._answered()

        self._client.routing.expire_all()
        self._client.persist(once, self._timeout_s)

    def _ask(self, one: _Unacknowledged) -> None:
        partition_data = [{"index": one.partition.partition, "records": one.batch}]
        values = {
            "transactional_id": None if self.transaction is None else self.transaction.transactional_id,
            "acks": self._acks,
            "timeout": round(self._timeout_s * 1000),
            "topic_data": [{"name": one.partition.topic, "partition_data": partition_data}],
        }
        pending = self._client.start(Leader(one.partition), Request(PRODUCE, values))
        if self._acks:
            self._asked.append((pending, one))
        else:
            self._settle(one, -1, None)

    def _answered(self) -> None:
        """Take the oldest answer."""
        pending, one = self._asked.popleft()
        (topic,) = pending.take(self._timeout_s).responses
        (stored,) = topic.partition_responses
        refusal = _refusal(stored, one.partition)
        if isinstance(refusal, Unavailable):
            raise refusal
        self._settle(one, stored.base_offset, refusal)

    def _settle(self, one: _Unacknowledged, base_offset: int, refusal: AnabranchError | None) -> None:
        self._unacknowledged.remove(one)
        self._on_settled(Settled(one.partition, one.batch, base_offset, refusal))

    def commit_offset(self, group: str, partition: TopicPartition, offset: int, metadata: str) -> None:
        """An offset of a group that counts if the transaction is committed."""
        transaction = self.transaction
        assert transaction is not None, "offsets are committed in transactions"
        values = {**transaction._asdict(), "group_id": group}

        to = Coordinator(TRANSACTIONS, transaction.transactional_id)
        answer = self._client.send(to, Request(ADD_OFFSETS_TO_TXN, values))
        check(answer.error_code, f"group {group!r} in the transaction")
        items = offset_items({partition: offset}, metadata)
        values |= {"generation_id": -1, "member_id": "", "topics": by_topic(items, "partitions")}
        answer = self._client.send(Coordinator(GROUPS, group), Request(TXN_OFFSET_COMMIT, values))
        check_partitions(answer, "the offset")

    def close(self) -> None:
        """Forget what is on its way.  A transaction stays open."""
        if self._asked:
            self._asked.clear()
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refusal(stored: Any, partition: TopicPartition) -> AnabranchError | None:
    """Why a batch is not stored, None if it is."""
    code = stored.error_code
    if not code or code == ErrorCode.duplicate_sequence_number:
        return None
    if code == ErrorCode.message_too_large:
        return Invalid(
            f"{partition} takes no batch of that size ({error_name(code)}): "
            "lower kafka.batch.size or raise the topic's max.message.bytes"
        )
    reason = f": {stored.error_message}" if stored.error_message else ""
    return kind_of(code)(f"writing to {partition}{reason}: {error_name(code)}")
