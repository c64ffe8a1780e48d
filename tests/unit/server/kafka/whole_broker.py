"""A broker with everything but sockets: real store, cluster, logs; questions and answers over their bytes.

    answer = await broker.ask(3, 12, topics=[{"name": "orders"}])
    answer.topics[0].error_code

A question is written by kio from plain values, read by our decoder, given to its handler; the answer is
written by our encoder and read by kio.
"""

import asyncio
import datetime
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import MISSING, fields
from inspect import isawaitable
from pathlib import Path
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from anabranch.base.ids import BrokerId, TopicName
from anabranch.base.network import FileRange
from anabranch.cluster.topics import NewTopic
from anabranch.meta.image import BrokerImage, ClusterImage, TopicImage
from anabranch.partition.partition import Partition
from anabranch.server.kafka.registry import RequestContext, load_apis
from anabranch.server.peer import Peer
from anabranch.server.services import Services
from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import answers_flexibly, request_schema, response_schema
from tests.support.logs import SetClock, records
from tests.support.worlds import a_world, node_parts


class WholeBroker:
    """Broker 1 of a cluster of one."""

    def __init__(self, services: Services, clock: SetClock) -> None:
        self.services = services
        self.clock = clock
        self.peer = Peer("127.0.0.1", 50_000)
        self.connection_id = 1

    @property
    def image(self) -> ClusterImage:
        return self.services.cluster.image

    async def create(self, name: str, partitions: int = 1, **config: str) -> TopicImage:
        options = {key.replace("_", "."): value for key, value in config.items()}
        return await self.services.cluster.create_topic(
            NewTopic(TopicName.from_kafka(name), partitions, 1, (), options)
        )

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.services.partitions.partition(topic, index)

    def put(self, topic: str, *values: str, index: int = 0, **batch: Any) -> int:
        """Append one batch; its base offset."""
        return self.partition(topic, index).append(memoryview(records(*values, **batch)), 1).base_offset

    async def ask(self, key: int, version: int, /, **values: Any) -> Any:
        """Ask as a client of `version` would, with what it does not say at the schema's defaults."""
        body = io.BytesIO()
        schema = request_schema(key, version)
        entity_writer(schema)(body, build(schema, values))
        frame = memoryview(body.getvalue())
        context = RequestContext(version, "test", self.connection_id, self.services, self.peer)
        api = load_apis()[key]
        if api.raw:
            answer = api.handler(frame, 0, context)
            out = _bytes(await _whole(answer))[answers_flexibly(key, version) :]
        else:
            answer = api.handler(decode(key, version, frame, 0), context)
            written = bytearray()
            encoder(key, version)(written, await answer if isawaitable(answer) else answer)
            out = bytes(written)
        read, size = entity_reader(response_schema(key, version))(out, 0)
        assert size == len(out)
        return read


async def _whole(answer: Any) -> Any:
    """The chunks of a raw answer, once they are known."""
    if hasattr(answer, "answered"):
        return await asyncio.wait_for(answer.answered, 60)
    return await answer if isawaitable(answer) else answer


def _bytes(chunks: Any) -> bytes:
    return b"".join(
        chunk.file.pread(chunk.size, chunk.position) if isinstance(chunk, FileRange) else bytes(chunk)
        for chunk in chunks
    )


def build(schema: Any, values: dict[str, Any]) -> Any:
    """A message of kio's from plain values: dicts, lists, milliseconds."""
    unknown = values.keys() - {field.name for field in fields(schema)}
    assert not unknown, f"{schema.__name__} v{schema.__version__} has no {unknown}"
    return schema(**{field.name: _value(field, values) for field in fields(schema)})


def _value(field: Any, values: dict[str, Any]) -> Any:
    kind = classify_field(field)
    kafka_type = field.metadata.get("kafka_type", "")
    if field.name not in values:
        if field.default is not MISSING:
            return field.default
        if is_optional(field):
            return None
        empty: dict[str, Any] = {"string": "", "bytes": b"", "bool": False}
        default = () if kind.is_array else empty.get(kafka_type, 0)
        return datetime.timedelta(seconds=30) if kafka_type.startswith("timedelta") else default
    value = values[field.name]
    if value is None:
        return None
    if isinstance(kind, EntityTupleField):
        return tuple(build(kind.type_, item) for item in value)
    if isinstance(kind, EntityField):
        return build(kind.type_, value)
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    return tuple(value) if kind.is_array else value


@asynccontextmanager
async def open_broker(data: Path, **settings: str) -> AsyncIterator[WholeBroker]:
    """A broker on `data`, which may have been another's before; `num_partitions="3"` sets num.partitions."""
    clock = SetClock()
    async with node_parts(data, a_world(clock=clock), **settings) as parts:
        await parts.cluster.register_broker(BrokerImage(BrokerId(1), "127.0.0.1", 9092, "rack-a"))
        yield WholeBroker(parts.services, clock)
