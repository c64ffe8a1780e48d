"""Schemas: GET_SCHEMA and GET_OR_CREATE_SCHEMA, and what producers and consumers bring.

A version is eight bytes on the wire, the highest first; messages carry it, and who reads them asks for the
schema of that version.  Bytes are no schema.  AUTO_CONSUME takes whatever the topic has.
"""

import struct
from typing import TYPE_CHECKING, Any

from anabranch.base.errors import UnknownTopic
from anabranch.records.pulsar_metadata_pb2 import KeyValue
from anabranch.schemas.definition import Definition
from anabranch.schemas.errors import InvalidSchema
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import Later, command
from anabranch.server.pulsar.schema_types import name_of_type, type_of_name
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.pulsar.topic_access import topic_name
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic
from anabranch.wire.pulsar import commands_pb2 as pb

if TYPE_CHECKING:
    from anabranch.schemas.registry import Version

_NO_VERSION = b""
_VERSION = struct.Struct(">q")
_WITHOUT_SCHEMA = (pb.Schema.Bytes, pb.Schema.AutoConsume)


async def schema_of_producer(services: PulsarServices, topic: AnyTopic, schema: pb.Schema | None) -> bytes:
    """Check or add what a producer brings; the version that its messages then carry."""
    brought = None if schema is None or schema.type in _WITHOUT_SCHEMA else _definition(schema)
    version = await services.schemas.written_by(topic.name, brought)
    return _NO_VERSION if version is None else _VERSION.pack(version)


async def schema_of_consumer(services: PulsarServices, topic: AnyTopic, schema: pb.Schema | None) -> None:
    """Check what a consumer brings."""
    if schema is None or schema.type in _WITHOUT_SCHEMA:
        return
    await services.schemas.read_by(topic.name, _definition(schema), is_untouched=_is_untouched(topic))


def _is_untouched(topic: AnyTopic) -> bool:
    """Whether nobody has written to it or reads it."""
    if len(topic.producers):
        return False
    if isinstance(topic, Topic):
        return topic.end == topic.start and not topic.subscriptions.has_consumers
    return not any(subscription.consumers for subscription in topic.subscriptions.values())


def _definition(schema: pb.Schema) -> Definition:
    properties = {pair.key: pair.value for pair in schema.properties}
    return Definition(name_of_type(schema.type), schema.schema_data, properties)


def get_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.GetSchemaResponse(request_id=request.request_id, error_code=code, error_message=message)
    return pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, get_schema_response=told)


def get_or_create_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.GetOrCreateSchemaResponse(request_id=request.request_id, error_code=code, error_message=message)
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=told
    )


@command(pb.BaseCommand.GET_SCHEMA, refusal=get_refused)
def get_schema(request: pb.GetSchema, connection: PulsarConnection) -> Later:
    return _get(request, connection)


async def _get(request: pb.GetSchema, connection: PulsarConnection) -> None:
    name = topic_name(request.topic)
    schemas = connection.services.schemas
    registry, subject = schemas.registry, await schemas.subject(name)
    if request.schema_version:
        found = await registry.at(subject, _number(request.schema_version))
    else:
        found = await registry.latest(subject)
    if found is None:
        raise UnknownTopic(f"Topic not found or no-schema {name.pulsar}")
    told = pb.GetSchemaResponse(
        request_id=request.request_id,
        schema=_told(f"{name.in_namespace}/{name.local}", found),
        schema_version=_VERSION.pack(found.number),
    )
    connection.send(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, get_schema_response=told))


def _number(version: bytes) -> int:
    if len(version) != _VERSION.size:
        raise InvalidSchema(f"a schema's version has {_VERSION.size} bytes, not {len(version)}")
    number: int = _VERSION.unpack(version)[0]
    return number


def _told(name: str, version: "Version") -> pb.Schema:
    definition = version.definition
    properties = [KeyValue(key=key, value=value) for key, value in definition.properties.items()]
    return pb.Schema(
        name=name,
        type=type_of_name(definition.type),
        schema_data=definition.data,
        properties=properties,
    )


@command(pb.BaseCommand.GET_OR_CREATE_SCHEMA, refusal=get_or_create_refused)
def get_or_create_schema(request: pb.GetOrCreateSchema, connection: PulsarConnection) -> Later:
    return _get_or_create(request, connection)


async def _get_or_create(request: pb.GetOrCreateSchema, connection: PulsarConnection) -> None:
    services = connection.services
    topic = await services.topics.open(topic_name(request.topic))
    version = await schema_of_producer(services, topic, request.schema)
    told = pb.GetOrCreateSchemaResponse(request_id=request.request_id, schema_version=version)
    connection.send(
        pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=told)
    )
