"""A client with transactions on several nodes, request by request over the wire.

    producer = WireProducer(nodes.client("c"), "copy", second=True)
    await producer.introduce()
    await producer.write(("orders", 0), "a")         # added to the transaction first, if it has to be
    await producer.commit_offset("g", ("orders", 0), 5)
    await producer.end(commit=True)

What a broker refuses for a moment is tried again, as clients do; what is refused for good is `Refused`.
`second` is the protocol: its Produce and TxnOffsetCommit join by themselves, and each end moves the epoch.
"""

import asyncio
from typing import Any

from anabranch.base.clock import SystemClock
from anabranch.client.aio import AsyncClient
from anabranch.client.answers import is_retried
from anabranch.client.destinations import (
    GROUPS,
    TRANSACTIONS,
    Coordinator,
    Leader,
    TopicPartition,
)
from anabranch.client.requests import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Request,
)
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import records

Place = tuple[str, int]
_PAUSE_S = 0.02


class Refused(Exception):
    """By a code that asking again does not change."""


class WireProducer:
    def __init__(self, client: AsyncClient, id: str, *, second: bool = False) -> None:
        self.client = client
        self.id = id
        self.second = second
        self.producer_id = self.epoch = -1
        self._sequences: dict[Place, int] = {}
        self._in: set[Place | str] = set()

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(TRANSACTIONS, self.id)

    async def introduce(self) -> None:
        values = {
            "transactional_id": self.id,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._ask(self.coordinator, Request(INIT_PRODUCER_ID, values))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._in.clear()

    async def write(self, place: Place, *values: str, join: bool = True) -> int:
        """The base offset.  Without `join` the transaction is not told of the partition."""
        if join and not self.second and place not in self._in:
            await self._ask(self.coordinator, self._adding(place))
        sequence = self._sequences.get(place, 0)
        batch = records(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
            timestamp=SystemClock().now_ms(),
        )
        part = {"index": place[1], "records": batch}
        fields = {
            "transactional_id": self.id,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": place[0], "partition_data": [part]}],
        }
        request = Request(PRODUCE, fields, newest=12 if self.second else 11)
        answer = await self._ask(Leader(TopicPartition(*place)), request)
        self._in.add(place)
        self._sequences[place] = sequence + len(values)
        return int(answer.responses[0].partition_responses[0].base_offset)

    def _adding(self, place: Place) -> Request:
        return Request(
            ADD_PARTITIONS_TO_TXN,
            {
                "v3_and_below_transactional_id": self.id,
                "v3_and_below_producer_id": self.producer_id,
                "v3_and_below_producer_epoch": self.epoch,
                "v3_and_below_topics": [{"name": place[0], "partitions": [place[1]]}],
            },
        )

    async def commit_offset(self, group: str, place: Place, offset: int, *, join: bool = True) -> None:
        fields = {
            "transactional_id": self.id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        if join and not self.second and group not in self._in:
            await self._ask(self.coordinator, Request(ADD_OFFSETS_TO_TXN, fields))
        part = {
            "partition_index": place[1],
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        fields |= member | {"topics": [{"name": place[0], "partitions": [part]}]}
        request = Request(TXN_OFFSET_COMMIT, fields, newest=5 if self.second else 4)
        await self._ask(Coordinator(GROUPS, group), request)
        self._in.add(group)

    async def end(self, *, commit: bool) -> None:
        fields = {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }
        request = Request(END_TXN, fields, newest=5 if self.second else 4)
        answer = await self._ask(self.coordinator, request)
        self._in.clear()
        if self.second:
            if self.epoch != answer.producer_epoch:
                self._sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def _ask(self, to: Any, request: Request) -> Any:
        """Again for as long as it may help: for a moment after an end it has not come everywhere."""
        while True:
            answer = await self.client.send(to, request, 60)
            code = next(request.codes(answer), 0)
            if not code:
                return answer
            if not is_retried(code):
                raise Refused(ErrorCode(code).name)
            await asyncio.sleep(_PAUSE_S)


async def committed_offset(client: AsyncClient, group: str, place: Place) -> int:
    """What the group's coordinator says when nothing is pending."""
    topics = [{"name": place[0], "partition_indexes": [place[1]]}]
    values = {"group_id": group, "topics": topics, "require_stable": True}
    answer = await client.send(Coordinator(GROUPS, group), Request(OFFSET_FETCH, values), 60)
    return int(answer.topics[0].partitions[0].committed_offset)
