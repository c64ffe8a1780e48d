"""Markers for partitions that other brokers lead: WriteTxnMarkers requests, one queue per broker.

    send(place, end) ─> the leader's queue ─> WriteTxnMarkers (27) ─> done, or what is wrong

A marker is sent once.  Who asked for it sends it again, to whoever leads the partition by then.  When the
image has another leader for a marker that is on its way, nobody waits for the old one any longer: it may be
paused.

An answer that the partition is unknown is no proof that it was deleted, since that broker may be behind; only
the image is.
"""

import asyncio
from random import Random
from typing import Any, NamedTuple

from anabranch.base.errors import (
    AnabranchError,
    InvalidProducerEpoch,
    NotOwner,
    TransactionCoordinatorFenced,
    Unavailable,
)
from anabranch.base.ids import BrokerId
from anabranch.client.answers import error_name
from anabranch.client.requests import WRITE_TXN_MARKERS, Request
from anabranch.groups.effects import Producer
from anabranch.groups.other_brokers import BrokerQueues, OtherBrokers, heard, unambiguous
from anabranch.groups.transaction_records import TopicPartition
from anabranch.groups.transactions import EPOCH_BUMP
from anabranch.meta.image import NO_BROKER
from anabranch.records.control import Marker
from anabranch.wire.kafka.schema import ErrorCode

TIMEOUT_S = 30.0  # Kafka's request.timeout.ms, which brokers give each other for markers
_MOST = 2000  # partitions in a request


class End(NamedTuple):
    """How a producer's transaction ends."""

    producer: Producer
    marker: Marker
    strict: bool
    """Refuse it where the producer has a transaction open in this very epoch: that is the next one."""


class _Sent(NamedTuple):
    place: TopicPartition
    end: End
    broker: BrokerId
    answered: "asyncio.Future[None]"


class MarkerQueues:
    def __init__(self, brokers: OtherBrokers, random: Random) -> None:
        self._brokers = brokers
        self._queues: BrokerQueues[_Sent] = BrokerQueues(self._send, _MOST, random)
        self._on_their_way: dict[int, _Sent] = {}

    def send(self, place: TopicPartition, end: End) -> "asyncio.Future[None]":
        """Done when the partition has the marker, and it is safe; Unavailable if nobody can say that."""
        broker = self._brokers.leader_of(*place)
        if broker == NO_BROKER:
            raise Unavailable(f"{place[0]}-{place[1]} has no leader")
        if broker == self._brokers.me:
            raise Unavailable(f"{place[0]}-{place[1]} is about to be led here, or has just been")
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent = _Sent(place, end, broker, answered)
        self._on_their_way[id(sent)] = sent
        answered.add_done_callback(lambda _: self._on_their_way.pop(id(sent), None))
        answered.add_done_callback(heard)
        self._queues.put(broker, sent)
        return answered

    def image_changed(self) -> None:
        """Wait no longer for who does not lead any more."""
        for sent in list(self._on_their_way.values()):
            leader = self._brokers.leader_of(*sent.place)
            if leader != sent.broker and not sent.answered.done():
                sent.answered.set_exception(NotOwner(f"broker {sent.broker} leads no more", leader))

    def close(self) -> None:
        self._queues.close()
        self._brokers.close()

    async def _send(self, broker: BrokerId, markers: list[_Sent]) -> None:
        wanted = [sent for sent in markers if not sent.answered.done()]
        # Answers go by the producer id, so that of a producer there is one end in a request.
        for some in unambiguous(wanted, lambda sent: (sent.end.producer.producer_id, sent.end)):
            answer = await self._brokers.ask(broker, _request(some), TIMEOUT_S)
            codes = {
                (marker.producer_id, topic.name, part.partition_index): part.error_code
                for marker in answer.markers
                for topic in marker.topics
                for part in topic.partitions
            }
            for sent in some:
                if not sent.answered.done():
                    _answer(sent, codes.get((sent.end.producer.producer_id, *sent.place)))


def _request(markers: list[_Sent]) -> Request:
    by_end: dict[End, dict[str, list[int]]] = {}
    for (topic, index), end, *_ in markers:
        by_end.setdefault(end, {}).setdefault(topic, []).append(index)
    values = [_marker(end, topics) for end, topics in by_end.items()]
    return Request(WRITE_TXN_MARKERS, {"markers": values})


def _marker(end: End, topics: dict[str, list[int]]) -> dict[str, Any]:
    return {
        "producer_id": end.producer.producer_id,
        "producer_epoch": end.producer.epoch,
        "transaction_result": end.marker.commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
        "coordinator_epoch": end.marker.coordinator_epoch,
        "transaction_version": EPOCH_BUMP if end.strict else 0,
    }


def _answer(sent: _Sent, code: int | None) -> None:
    if code == ErrorCode.none:
        sent.answered.set_result(None)
        return
    kinds: dict[int | None, type[AnabranchError]] = {
        int(ErrorCode.invalid_producer_epoch): InvalidProducerEpoch,
        int(ErrorCode.transaction_coordinator_fenced): TransactionCoordinatorFenced,
    }
    told = "did not answer for it" if code is None else f"says {error_name(code)}"
    sent.answered.set_exception(kinds.get(code, Unavailable)(f"broker {sent.broker} {told}"))
