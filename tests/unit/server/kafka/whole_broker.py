"""A broker with everything but sockets: real store, cluster, logs; questions and answers over their bytes.

    answer = await broker.ask(3, 12, topics=[{"name": "orders"}])
    answer.topics[0].error_code

A question is written by kio from plain values, read by our decoder, given to its handler; the answer is
written by our encoder and read by kio.
"""

import asyncio
import datetime
import io
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import MISSING, fields
from inspect import isawaitable
from pathlib import Path
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from anabranch.base.disk import DirectDisk
from anabranch.base.ids import BrokerId, TopicName
from anabranch.base.network import FileRange
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.coordinators import group_coordinator, share_coordinator, transaction_coordinator
from anabranch.cluster.hosting import Hosting
from anabranch.cluster.image import BrokerImage, ClusterImage, TopicImage, appearance
from anabranch.cluster.share_partitions import share_partitions
from anabranch.cluster.topics import NewTopic, TopicDefaults
from anabranch.meta.embedded import EmbeddedStore
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.server.config import DynamicConfig
from anabranch.server.config_file import load
from anabranch.server.fetch_sessions import FetchSessions
from anabranch.server.handover import Handovers
from anabranch.server.kafka.registry import RequestContext, load_apis
from anabranch.server.peer import Peer
from anabranch.server.producer_ids import ProducerIds
from anabranch.server.services import Services
from anabranch.server.share_sessions import ShareSessions
from anabranch.server.telemetry import Telemetry
from anabranch.wire.kafka.decoder import decode
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import answers_flexibly, request_schema, response_schema
from tests.support.logs import SetClock, records


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
    if isawaitable(answer):
        answer = await answer
    return await asyncio.wait_for(answer.answered, 60) if hasattr(answer, "answered") else answer


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
    static = {name.replace("_", "."): value for name, value in settings.items()}
    config = load(None, {}, {"log.dirs": str(data), **static})
    clock, chance, disk = SetClock(), random.Random(7), DirectDisk()
    dynamic = DynamicConfig(config)
    defaults = TopicDefaults(config.topics.num_partitions, config.topics.default_replication_factor)
    disk.make_dirs(data)
    store = EmbeddedStore.open(data / "metadata", disk)
    cluster = await Cluster.open(
        store, BrokerId(1), clock, chance, defaults, lambda overrides: check(dynamic, overrides)
    )
    host = PartitionHost(disk, clock, data, BrokerId(1))
    hosting = Hosting(host, dynamic.stored_log_config)
    for subscriber in (dynamic.image_changed, hosting.image_changed):
        subscriber(appearance(cluster.image))
        cluster.subscribe(subscriber)
    host.recover()
    await cluster.register_broker(BrokerImage(BrokerId(1), "127.0.0.1", 9092, "rack-a"))
    producer_ids = ProducerIds(cluster)
    telemetry = Telemetry(cluster, dynamic, clock, chance)
    sessions = FetchSessions(config.fetch.max_session_slots, clock, chance)
    groups = group_coordinator(cluster, host, clock, chance, lambda: dynamic.current.groups)
    transactions = transaction_coordinator(
        cluster, host, clock, lambda: dynamic.current.transactions, producer_ids.next, groups
    )
    sharing = share_coordinator(cluster, host, clock, lambda: dynamic.current.share_states, groups)
    shares = share_partitions(cluster, host, clock, lambda: dynamic.current.groups, sharing.states)
    share_sessions = ShareSessions(lambda: dynamic.current.groups.share_max_share_sessions, shares.release)
    services = Services(
        clock,
        dynamic,
        cluster,
        host,
        producer_ids,
        telemetry,
        sessions,
        groups,
        sharing,
        shares,
        share_sessions,
        transactions,
        Handovers(lambda group_id, topic, index: None, host.partition, clock),
    )
    try:
        yield WholeBroker(services, clock)
    finally:
        await shares.stop()
        sharing.close()
        transactions.close()
        groups.close()
        await producer_ids.close()
        host.close()
        await store.close()


def check(dynamic: DynamicConfig, overrides: Any) -> None:
    dynamic.log_config(overrides)
