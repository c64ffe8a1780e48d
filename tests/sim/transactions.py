"""Simulated writers of transactions: a few batches to several partitions, then a commit or an abort.

    Transactor(world, cluster, "t0", places, history)

Held against what committed readers get in the end: all of what was committed, nothing of what was aborted,
and of a transaction whose end nobody told, all or nothing.
"""

from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.client.answers import check
from anabranch.client.destinations import TRANSACTIONS, Coordinator, Leader, TopicPartition
from anabranch.client.group_offsets import by_topic
from anabranch.client.requests import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, PRODUCE, Request
from anabranch.wire.kafka.schema import ErrorCode
from tests.sim.clients import Client
from tests.sim.cluster import SimCluster
from tests.sim.history import History, Transaction
from tests.sim.world import SimWorld
from tests.support.logs import records

_TIMEOUT_MS = 15_000


class Transactor(Client):
    def __init__(
        self, world: SimWorld, cluster: SimCluster, name: str, places: list[TopicPartition], history: History
    ) -> None:
        super().__init__(world, cluster, name)
        self._places = places
        self._history = history
        self._to = Coordinator(TRANSACTIONS, name)
        self._id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._number = 0
        self.run(self._live)

    async def _live(self) -> None:
        while not self.is_over:
            try:
                await self._begin()
                while not self.is_over:
                    await self._transact()
                    await self.pause(1.0)
            except AnabranchError as error:
                self.world.say(self.name, f"begins anew: {error}")
                await self.pause(0.5)

    async def _begin(self) -> None:
        values = {
            "transactional_id": self.name,
            "transaction_timeout": _TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self.send(self._to, Request(INIT_PRODUCER_ID, values))
        check(answer.error_code, self.name)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences = dict.fromkeys(self._places, 0)

    async def _transact(self) -> None:
        transaction = Transaction({place: [] for place in self._places})
        self._history.transactions.append(transaction)
        places = self.random.sample(self._places, self.random.randint(1, len(self._places)))
        await self._join(places)
        for place in places:
            for _ in range(self.random.randint(1, 2)):
                await self._write(place, transaction)
        commits = self.random.random() < 0.7
        if commits:
            transaction.is_committed = None
        values = {**self._who(), "committed": commits}
        answer = await self.send(self._to, Request(END_TXN, values))
        check(answer.error_code, f"the end of a transaction of {self.name}")
        transaction.is_committed = commits

    def _who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self._id, "producer_epoch": self._epoch}

    async def _join(self, places: list[TopicPartition]) -> None:
        values = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self._id,
            "v3_and_below_producer_epoch": self._epoch,
            "v3_and_below_topics": by_topic([(one, one.partition) for one in places], "partitions"),
        }
        answer = await self.send(self._to, Request(ADD_PARTITIONS_TO_TXN, values))
        for topic in answer.results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                check(one.partition_error_code, f"{topic.name}-{one.partition_index}")

    async def _write(self, place: TopicPartition, transaction: Transaction) -> None:
        count = self.random.randint(1, 2)
        values = [f"{self.name}.{number}" for number in range(self._number, self._number + count)]
        self._number += count
        transaction.values[place] += [value.encode() for value in values]
        batch = records(
            *values,
            timestamp=self.machine.clock.now_ms(),
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[place],
            transactional=True,
        )
        part = {"index": place.partition, "records": batch}
        request = {
            "transactional_id": self.name,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": place.topic, "partition_data": [part]}],
        }
        answer = await self.send(Leader(place), Request(PRODUCE, request))
        stored = answer.responses[0].partition_responses[0]
        if stored.error_code != ErrorCode.duplicate_sequence_number:
            check(stored.error_code, f"{place}: {values[0]}")
            for i, value in enumerate(values):
                self._history.of(place).note(stored.base_offset + i, value.encode(), f"producer {self.name}")
        self._sequences[place] += count
