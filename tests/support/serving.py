"""Request handlers without a broker: partitions in a folder, requests written by kio, answers read by it.

    served = Served(folder)
    served.topic("orders", partitions=2, cleanup_policy=("compact",))
    served.produce("orders", batch)      # the partition's answer
    await served.fetch("orders", 0)      # the whole answer, once there is one

Everything behind the handlers is real; the clock is set by the test.
"""

import asyncio
import io
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kio.serial import entity_reader, entity_writer

from anabranch.base.disk import DirectDisk
from anabranch.base.ids import BrokerId, TopicName
from anabranch.base.network import FileRange
from anabranch.log.config import LogConfig
from anabranch.meta.image import BrokerImage
from anabranch.partition.partition import Partition
from anabranch.server.config import BrokerConfig, DynamicConfig, Layers
from anabranch.server.fetch_sessions import FetchSessions
from anabranch.server.handover import Handovers
from anabranch.server.kafka.fetch import fetch
from anabranch.server.kafka.produce import produce
from anabranch.server.kafka.registry import RequestContext
from anabranch.server.peer import Peer
from anabranch.server.request_times import Requests
from anabranch.subscriptions.cursor import Cursor
from anabranch.wire.kafka.schema import request_schema, response_schema
from tests.compat.clients.raw import build
from tests.support.hosts import a_host
from tests.support.images import topic_image
from tests.support.logs import SetClock

PRODUCE, FETCH = 0, 1
BY_ID = 13
HEAD = b"head"  # whatever stands before the body of a request


BROKERS = (BrokerImage(BrokerId(1), "one.example", 9092), BrokerImage(BrokerId(2), "two.example", 9093, "b"))


class Served:
    """Partitions, and the handlers that serve them to one client."""

    def __init__(self, folder: Path, *, slots: int = 100, **settings: str) -> None:
        self.folder = folder
        self.clock = SetClock()
        self.disk = DirectDisk()
        self.host = a_host(folder, self.clock, self.disk)
        self.host.recover()
        self.sessions = FetchSessions(slots, self.clock, Random(1))
        static = {name.replace("_", "."): value for name, value in settings.items()}
        self.services: Any = SimpleNamespace(
            clock=self.clock,
            config=DynamicConfig(BrokerConfig.build(Layers(static, {}, {}))),
            cluster=SimpleNamespace(image=SimpleNamespace(brokers={one.id: one for one in BROKERS})),
            partitions=self.host,
            fetch_sessions=self.sessions,
            written_topics=SimpleNamespace(),
            requests=Requests(),
            handovers=Handovers(lambda *place: self.ahead.get(place), self.host.partition, self.clock),
        )
        self.ahead: dict[tuple[str, str, int], Cursor] = {}
        """What subscriptions have acknowledged, by group, topic and partition."""
        self.peer = Peer()
        self.ids: dict[str, UUID] = {}

    # --- topics

    def topic(self, name: str, partitions: int = 1, **config: Any) -> UUID:
        self.ids[name] = topic_id = UUID(int=len(self.ids) + 1000)
        self.host.add_topic(topic_image(name, topic_id, partitions), LogConfig(**config))
        return topic_id

    def delete(self, name: str) -> None:
        self.host.remove_topic(TopicName.from_kafka(name))

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.host.partition(name, index)

    # --- produce

    def send(self, body: bytes, version: int, handler: Any = produce) -> Any:
        """What the handler gives back for a request with this body."""
        context = RequestContext(version, "test", 1, self.services, self.peer)
        frame = memoryview(bytearray(HEAD + body))
        reply = handler(frame, len(HEAD), context)
        if not asyncio.iscoroutine(reply):
            frame[:] = bytes(len(frame))  # the buffer is used again
        return reply

    def produce_body(self, values: dict[str, Any], version: int) -> bytes:
        return written(PRODUCE, version, {"timeout": 1000} | values)

    def produce_raw(
        self, topic: str, records: bytes | None, partition: int = 0, acks: int = -1, version: int = 9
    ) -> Any:
        named = {"name": topic, "topic_id": self.ids.get(topic, UUID(int=1))}
        part = {"index": partition, "records": None if records is None else bytes(records)}
        values = {"acks": acks, "topic_data": [named | {"partition_data": [part]}]}
        return self.send(self.produce_body(values, version), version)

    def produce(self, topic: str, records: bytes | None, **options: Any) -> Any:
        """The answer of the one partition that was written to."""
        reply = self.produce_raw(topic, records, **options)
        assert isinstance(reply, tuple), "the answer is not there at once"
        answer = read_answer(PRODUCE, options.get("version", 9), reply)
        return answer.responses[0].partition_responses[0]

    async def produce_later(self, topic: str, records: bytes | None, **options: Any) -> Any:
        """The same for a batch that is worked on in a thread."""
        reply = await self.produce_raw(topic, records, **options)
        if hasattr(reply, "answered"):
            reply = await reply.answered
        return read_answer(PRODUCE, options.get("version", 9), reply).responses[0].partition_responses[0]

    # --- fetch

    def fetch_raw(self, wanted: list[tuple[str, int, int]], version: int = 16, **options: Any) -> Any:
        """(topic, partition, offset) each.  A list of chunks, or something that waits."""
        topics: dict[str, list[dict[str, Any]]] = {}
        size = options.pop("partition_max_bytes", 1 << 20)
        extra = options.pop("extra", {})
        for topic, partition, offset in wanted:
            part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size}
            topics.setdefault(topic, []).append(part | extra)
        values = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 50 << 20,
            "topics": [self._named(topic) | {"partitions": parts} for topic, parts in topics.items()],
            "session_id": 0,
            "session_epoch": -1,
        } | options
        values["forgotten_topics_data"] = [
            self._named(topic) | {"partitions": [partition]} for topic, partition in options.get("forget", ())
        ]
        values.pop("forget", None)
        return self.send(written(FETCH, version, values), version, fetch)

    def _named(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "topic_id": self.ids.get(topic, UUID(int=1))}

    def fetch(self, wanted: list[tuple[str, int, int]], version: int = 16, **options: Any) -> "Answered":
        """The answer, which must be there at once."""
        reply = self.fetch_raw(wanted, version, **options)
        assert isinstance(reply, list), "the answer is not there at once"
        return Answered(self, read_answer(FETCH, version, reply))


class Answered:
    """The answer to a fetch, by topic and partition."""

    def __init__(self, served: Served, answer: Any) -> None:
        self.error_code = int(getattr(answer, "error_code", 0))
        self.session_id = int(getattr(answer, "session_id", 0))
        names = {topic_id: name for name, topic_id in served.ids.items()}
        self.parts: dict[tuple[str, int], Any] = {}
        for topic in answer.responses:
            name = names.get(topic.topic_id, "?") if hasattr(topic, "topic_id") else topic.topic
            for part in topic.partitions:
                assert (name, part.partition_index) not in self.parts, "a partition is told twice"
                self.parts[(name, part.partition_index)] = part

    @property
    def sizes(self) -> dict[tuple[str, int], int]:
        return {where: len(part.records or b"") for where, part in self.parts.items()}

    @property
    def codes(self) -> dict[tuple[str, int], int]:
        return {where: int(part.error_code) for where, part in self.parts.items()}


def written(key: int, version: int, values: dict[str, Any]) -> bytes:
    """The body of a request, by kio."""
    schema = request_schema(key, version)
    out = io.BytesIO()
    entity_writer(schema)(out, build(schema, values))
    return out.getvalue()


def read_answer(key: int, version: int, chunks: Any) -> Any:
    """What kio reads from an answer's chunks, all of them."""
    data = b"".join(
        chunk.file.pread(chunk.size, chunk.position) if isinstance(chunk, FileRange) else bytes(chunk)
        for chunk in chunks
    )
    schema = response_schema(key, version)
    at = 1 if schema.__header_schema__.__flexible__ else 0
    answer, size = entity_reader(schema)(data, at)
    assert at + size == len(data)
    return answer
