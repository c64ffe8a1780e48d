"""Schemas: GET_SCHEMA and GET_OR_CREATE_SCHEMA, and what producers and consumers bring.

There is no registry yet.  A topic has no schema then, and Pulsar's answer for such a topic is
TopicNotFound.  A producer or consumer that brings none, or one of bytes, is let in; one that brings a
real one is refused, since nobody would check what it writes.  `take_schema` is the seam where the
registry goes in.
"""

from typing import Any

from anabranch.base.errors import UnknownTopic
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.errors import IncompatibleSchema
from anabranch.server.pulsar.registry import Later, command
from anabranch.server.pulsar.services import PulsarServices
from anabranch.server.pulsar.topic_access import topic_name
from anabranch.topics.registry import AnyTopic
from anabranch.wire.pulsar import commands_pb2 as pb

_NO_VERSION = b""


async def take_schema(services: PulsarServices, topic: AnyTopic, schema: pb.Schema | None) -> bytes:
    """Check or add what a producer or consumer of `topic` brings; the version that messages then carry."""
    if schema is None or schema.type in _WITHOUT_SCHEMA:
        return _NO_VERSION
    raise IncompatibleSchema(
        f"topic {topic.full_name} takes no {pb.Schema.Type.Name(schema.type)} schema: schemas are not kept "
        "here yet, use BytesSchema and encode in the client"
    )


_WITHOUT_SCHEMA = (pb.Schema.Bytes, pb.Schema.AutoConsume)


def get_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.GetSchemaResponse(request_id=request.request_id, error_code=code, error_message=message)
    return pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, get_schema_response=told)


def get_or_create_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.GetOrCreateSchemaResponse(request_id=request.request_id, error_code=code, error_message=message)
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=told
    )


@command(pb.BaseCommand.GET_SCHEMA, refusal=get_refused)
def get_schema(request: pb.GetSchema, connection: PulsarConnection) -> None:
    raise UnknownTopic(f"Topic not found or no-schema {topic_name(request.topic).pulsar}")


@command(pb.BaseCommand.GET_OR_CREATE_SCHEMA, refusal=get_or_create_refused)
def get_or_create_schema(request: pb.GetOrCreateSchema, connection: PulsarConnection) -> Later:
    return _get_or_create(request, connection)


async def _get_or_create(request: pb.GetOrCreateSchema, connection: PulsarConnection) -> None:
    services = connection.services
    topic = await services.topics.open(topic_name(request.topic))
    version = await take_schema(services, topic, request.schema)
    told = pb.GetOrCreateSchemaResponse(request_id=request.request_id, schema_version=version)
    connection.send(
        pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=told)
    )
