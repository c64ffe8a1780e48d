"""Participation: partitions in transactions, as their coordinator has it, here or on another broker.

    leader of a partition ─┬─ the coordinator is here:      a look, or a record in its log
                           └─ elsewhere: a queue per broker ─> AddPartitionsToTxn (24, v4)

A partition's leader asks before it opens a transaction: whether the partition is in it (`verify_only`), or
that it be added.  Questions to the same broker share a request.  Nobody waits longer than `_MOST_S`: without
an answer the client is told to send again.
"""

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

from anabranch.base.errors import AnabranchError, CoordinatorNotAvailable
from anabranch.base.ids import BrokerId
from anabranch.client.requests import ADD_PARTITIONS_TO_TXN, Request
from anabranch.groups.effects import Producer
from anabranch.groups.other_brokers import BrokerQueues, OtherBrokers, heard, unambiguous
from anabranch.groups.transaction_coordinator import STATE_TOPIC, TransactionCoordinator
from anabranch.groups.transaction_records import TopicPartition
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.meta.image import NO_BROKER
from anabranch.wire.kafka.schema import ErrorCode

_MOST_S = 5.0
_MOST = 500  # transactions in a request
_NEWEST = 5  # from 4 on the request is for brokers

Codes = dict[TopicPartition, ErrorCode]

_IS_BEHIND = (ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted)
"""What a coordinator says of a partition whose leader asks: it has not heard of it yet."""


class _Question(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    answered: "asyncio.Future[Codes]"


class Participation:
    def __init__(self, coordinator: TransactionCoordinator, brokers: OtherBrokers, random: Random) -> None:
        self._coordinator = coordinator
        self._brokers = brokers
        self._queues: BrokerQueues[_Question] = BrokerQueues(self._send, _MOST, random)

    def is_known_here(self, transactional_id: str) -> bool:
        """Whether `look` can tell."""
        return self._coordinator.is_here(transactional_id)

    def look(self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]) -> Codes:
        """Whether each of `partitions` is in the transaction that the producer has open, if that is here."""
        return self._coordinator.verify(transactional_id, producer, partitions)

    async def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> Codes:
        """The same wherever it is.  CoordinatorNotAvailable if there is no answer."""
        if self.is_known_here(transactional_id):
            return self.look(transactional_id, producer, partitions)
        return await self._ask(transactional_id, producer, partitions, verify_only=True)

    async def add(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """`partitions` take part from now on, all or none.  CoordinatorNotAvailable if there is no answer."""
        if self.is_known_here(transactional_id):
            return await self._coordinator.add(transactional_id, producer, partitions, EPOCH_BUMP)
        codes = await self._ask(transactional_id, producer, partitions, verify_only=False)
        return next(filter(None, codes.values()), ErrorCode.none)

    async def _ask(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
    ) -> Codes:
        broker = self._brokers.leader_of(STATE_TOPIC, self._coordinator.shard_of(transactional_id))
        if broker in (NO_BROKER, self._brokers.me):
            raise CoordinatorNotAvailable(f"nobody coordinates transactional id {transactional_id!r} now")
        answered: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        answered.add_done_callback(heard)
        question = _Question(transactional_id, producer, tuple(partitions), verify_only, answered)
        self._queues.put(broker, question)
        try:
            async with asyncio.timeout(_MOST_S):
                return await answered
        except TimeoutError as error:
            raise CoordinatorNotAvailable(f"broker {broker} does not answer") from error
        except CoordinatorNotAvailable:
            raise
        except AnabranchError as error:
            raise CoordinatorNotAvailable(str(error)) from error

    def close(self) -> None:
        self._queues.close()
        self._brokers.close()

    async def _send(self, broker: BrokerId, asked: list[_Question]) -> None:
        wanted = [question for question in asked if not question.answered.done()]
        for some in unambiguous(wanted, lambda question: (question.transactional_id, id(question))):
            answer = await self._brokers.ask(broker, _request(some), _MOST_S)
            results = {one.transactional_id: one.topic_results for one in answer.results_by_transaction}
            for question in some:
                if not question.answered.done():
                    _answer(question, answer.error_code, results.get(question.transactional_id, ()))


def _request(questions: list[_Question]) -> Request:
    return Request(
        ADD_PARTITIONS_TO_TXN, {"transactions": [_asked(one) for one in questions]}, newest=_NEWEST
    )


def _asked(question: _Question) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "transactional_id": question.transactional_id,
        "producer_id": question.producer.producer_id,
        "producer_epoch": question.producer.epoch,
        "verify_only": question.verify_only,
        "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    }


def _answer(question: _Question, outer: int, topics: Any) -> None:
    codes = dict.fromkeys(
        question.partitions, ErrorCode(outer) if outer else ErrorCode.coordinator_not_available
    )
    if not outer:
        for topic in topics:
            for part in topic.results_by_partition:
                code = ErrorCode(part.partition_error_code)
                told = ErrorCode.coordinator_not_available if code in _IS_BEHIND else code
                codes[(topic.name, part.partition_index)] = told
    question.answered.set_result(codes)
