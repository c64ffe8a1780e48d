"""Schemas over Pulsar's protocol: brought by producers and consumers, asked for by version."""

import json
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from anabranch.records.pulsar_metadata_pb2 import KeyValue
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from tests.support.pulsar_wire import Client, PulsarBroker, pulsar_broker

C = BaseCommand
INCOMPATIBLE = pb.ServerError.IncompatibleSchema


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PulsarBroker]:
    async with pulsar_broker(tmp_path) as running:
        yield running


def avro(*fields: str, default: int | None = None) -> pb.Schema:
    more = {} if default is None else {"default": default}
    told: list[Any] = [{"name": name, "type": "int", **more} for name in fields]
    text = json.dumps({"type": "record", "name": "R", "fields": told}).encode()
    pair = KeyValue(key="k", value="v")
    return pb.Schema(name="x", schema_data=text, type=pb.Schema.Avro, properties=[pair])


STRING = pb.Schema(name="", schema_data=b"", type=pb.Schema.String)


class Talk:
    """Producers and consumers of one topic, each by a new id."""

    ids = count(1)

    def __init__(self, client: Client, topic: str = "t") -> None:
        self.client = client
        self.topic = topic

    async def produce(self, schema: pb.Schema | None = None) -> bytes | int:
        """The version that it was told, or the code of its refusal."""
        answer = await self._ask(C.PRODUCER, schema, producer_id=next(self.ids))
        return answer.error.error if answer.type == C.ERROR else answer.producer_success.schema_version

    async def subscribe(self, schema: pb.Schema | None = None) -> int | None:
        """The code of its refusal."""
        id = next(self.ids)
        told = {"subscription": f"s{id}", "consumer_id": id, "type": pb.Subscribe.Exclusive}
        answer = await self._ask(C.SUBSCRIBE, schema, **told, force_topic_creation=True)
        return answer.error.error if answer.type == C.ERROR else None

    async def get(self, version: bytes | None = None) -> pb.GetSchemaResponse:
        told = {} if version is None else {"schema_version": version}
        answer = await self.client.ask(C.GET_SCHEMA, request_id=next(self.ids), topic=self.topic, **told)
        return answer.get_schema_response

    async def _ask(self, command: int, schema: pb.Schema | None, /, **fields: Any) -> BaseCommand:
        more = {} if schema is None else {"schema": schema}
        return await self.client.ask(command, topic=self.topic, request_id=next(self.ids), **fields, **more)


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


async def test_versions_of_what_producers_bring(broker: PulsarBroker) -> None:
    talk = Talk(await broker.connect())
    assert await talk.produce(avro("a")) == version(0)
    assert await talk.produce(avro("a")) == version(0)
    assert await talk.produce(avro("b")) == INCOMPATIBLE
    assert await talk.produce(avro("a", "b", default=0)) == version(1)
    assert await talk.produce(STRING) == INCOMPATIBLE
    assert await talk.produce() == b""
    latest, first = await talk.get(), await talk.get(version(0))
    assert (latest.schema_version, first.schema_version) == (version(1), version(0))
    assert first.schema.schema_data == avro("a").schema_data
    assert (first.schema.name, first.schema.type) == ("public/default/t", pb.Schema.Avro)
    assert [(pair.key, pair.value) for pair in first.schema.properties] == [("k", "v")]


async def test_asking_for_what_is_not_there(broker: PulsarBroker) -> None:
    talk = Talk(await broker.connect())
    assert (await talk.get()).error_code == pb.ServerError.TopicNotFound
    await talk.produce(avro("a"))
    assert (await talk.get(version(1))).error_code == pb.ServerError.TopicNotFound
    assert (await talk.get(b"\xff" * 8)).error_code == pb.ServerError.TopicNotFound
    assert (await talk.get(b"short")).error_code == INCOMPATIBLE


async def test_get_or_create(broker: PulsarBroker) -> None:
    client = await broker.connect()
    await Talk(client).produce()

    async def ask(schema: pb.Schema) -> pb.GetOrCreateSchemaResponse:
        answer = await client.ask(C.GET_OR_CREATE_SCHEMA, request_id=99, topic="t", schema=schema)
        return answer.get_or_create_schema_response

    assert (await ask(avro("a"))).schema_version == version(0)
    assert (await ask(avro("a", "b", default=0))).schema_version == version(1)
    assert (await ask(avro("c"))).error_code == INCOMPATIBLE


async def test_what_consumers_bring(broker: PulsarBroker) -> None:
    client = await broker.connect()
    talk = Talk(client, "first")
    assert await talk.subscribe(avro("a")) is None
    assert (await talk.get()).schema_version == version(0)
    assert await talk.subscribe(avro("b")) == INCOMPATIBLE
    assert await talk.subscribe(avro("b", default=0)) is None
    assert (await talk.get()).schema_version == version(0)
    used = Talk(client, "used")
    await used.produce()
    assert await used.subscribe(STRING) == INCOMPATIBLE
    assert await used.subscribe() is None
    auto = pb.Schema(name="", schema_data=b"", type=pb.Schema.AutoConsume)
    assert await used.subscribe(auto) is None
    apart = Talk(client, "non-persistent://public/default/apart")
    assert await apart.subscribe(STRING) is None
    assert await apart.subscribe(avro("a")) == INCOMPATIBLE


async def test_partitions_share_a_schema(tmp_path: Path) -> None:
    settings = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "2"}
    async with pulsar_broker(tmp_path, **settings) as broker:
        client = await broker.connect()
        await client.ask(C.PARTITIONED_METADATA, topic="p", request_id=900)
        assert await Talk(client, "p-partition-0").produce(avro("a")) == version(0)
        other = Talk(client, "p-partition-1")
        assert await other.produce(avro("b")) == INCOMPATIBLE
        assert await other.produce(avro("a", "b", default=0)) == version(1)


async def test_rules_of_the_broker(tmp_path: Path) -> None:
    settings = {"schemaCompatibilityStrategy": "FORWARD", "isSchemaValidationEnforced": "true"}
    async with pulsar_broker(tmp_path, **settings) as broker:
        talk = Talk(await broker.connect())
        assert await talk.produce() == b""
        assert await talk.produce(avro("a")) == version(0)
        assert await talk.produce() == INCOMPATIBLE
        assert await talk.produce(avro("a", "b")) == version(1)
    async with pulsar_broker(tmp_path, isAllowAutoUpdateSchemaEnabled="false") as broker:
        talk = Talk(await broker.connect())
        assert await talk.produce(avro("a", "b")) == version(1)
        assert await talk.produce(avro("a", "b", "c", default=1)) == INCOMPATIBLE
