"""A client with transactions, request by request, on a broker without sockets.

    client = await Client.introduced(broker, "copy")
    await client.add(("orders", 0))
    await client.produce("orders", "a")          # the code of the partition
    await client.end(commit=True)

`version` is the protocol: requests of the newest version of the first one, or of the second.
"""

from inspect import isawaitable
from typing import Any

from anabranch.server.kafka.produce import produce
from anabranch.server.kafka.registry import RequestContext
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.logs import records
from tests.support.serving import HEAD, read_answer, written
from tests.unit.server.kafka.whole_broker import WholeBroker

PRODUCE, FIND, INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT = 0, 10, 22, 24, 25, 26, 27, 28
DESCRIBE, LIST = 65, 66


class Client:
    def __init__(self, broker: WholeBroker, transactional_id: str, *, second: bool = False) -> None:
        self.broker = broker
        self.id = transactional_id
        self.second = second
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[int, str, int], int] = {}

    @classmethod
    async def introduced(
        cls, broker: WholeBroker, transactional_id: str, *, second: bool = False
    ) -> "Client":
        client = cls(broker, transactional_id, second=second)
        assert await client.introduce() == ErrorCode.none
        return client

    async def introduce(self, version: int = 5, **fields: Any) -> int:
        await self.broker.services.transactions.ensure_topic()
        values = {"transactional_id": self.id, "transaction_timeout": 60_000} | fields
        answer = await self.broker.ask(INIT, version, **values)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def add(self, *places: tuple[str, int], version: int = 3) -> dict[tuple[str, int], int]:
        answer = await self.broker.ask(
            ADD,
            version,
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [index]} for topic, index in places],
        )
        return added(answer.results_by_topic_v3_and_below)

    async def end(self, *, commit: bool, version: int | None = None) -> int:
        answer = await self.broker.ask(
            END,
            version if version is not None else (5 if self.second else 4),
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        if self.second and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def produce(self, topic: str, *values: str, index: int = 0, **options: Any) -> int:
        """The code of the one partition."""
        codes = await self.produce_to([(topic, index)], *values, **options)
        return codes[(topic, index)]

    async def produce_to(
        self,
        places: list[tuple[str, int]],
        *values: str,
        version: int | None = None,
        transactional_id: str | None = "",
        **fields: Any,
    ) -> dict[tuple[str, int], int]:
        if version is None:
            version = 12 if self.second else 11
        topics = []
        for topic, index in places:
            part = {"index": index, "records": self._batch(topic, index, values, fields)}
            topics.append({"name": topic, "partition_data": [part]})
        id = self.id if transactional_id == "" else transactional_id
        asked = {"transactional_id": id, "acks": -1, "timeout": 1000, "topic_data": topics}
        context = RequestContext(version, "test", 1, self.broker.services, self.broker.peer)
        frame = memoryview(bytearray(HEAD + written(PRODUCE, version, asked)))
        reply: Any = produce(frame, len(HEAD), context)
        if isawaitable(reply):
            frame[:] = bytes(len(frame))  # the buffer is used again
            reply = await reply
        answer = read_answer(PRODUCE, version, reply)
        codes = {
            (topic.name, part.index): int(part.error_code)
            for topic in answer.responses
            for part in topic.partition_responses
        }
        for place, code in codes.items():
            if not code:
                key = (self.epoch, *place)
                self.sequences[key] = self.sequences.get(key, 0) + len(values)
        return codes

    def _batch(self, topic: str, index: int, values: tuple[str, ...], fields: dict[str, Any]) -> bytes:
        told = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequences.get((self.epoch, topic, index), 0),
            "transactional": True,
            "timestamp": self.broker.clock.ms,
        }
        return bytes(records(*values, **(told | fields)))

    async def commit_offset(self, group: str, offset: int, version: int | None = None, **fields: Any) -> int:
        values = {
            "transactional_id": self.id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": [
                {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": offset}]}
            ],
        }
        version = version if version is not None else (5 if self.second else 3)
        answer = await self.broker.ask(COMMIT, version, **(values | fields))
        return int(answer.topics[0].partitions[0].error_code)


def added(topics: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, part.partition_index): int(part.partition_error_code)
        for topic in topics
        for part in topic.results_by_partition
    }
