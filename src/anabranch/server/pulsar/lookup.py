"""LOOKUP: which broker serves a topic.  PARTITIONED_METADATA: how many partitions it has.

Any broker names the one that leads the topic's partition.  Who is asked for a topic that is not there yet
names itself: it is made by the first who uses it.

A topic that is not partitioned has 0, and so has one that is not there yet but may be made by the first who
uses it; where such topics are made partitioned, asking makes it.  A client that asks without wanting that
(`metadata_auto_creation_enabled=false`) is told that there is none.
"""

from typing import Any

from anabranch.base.ids import TopicName
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.owners import find_owner, url_of
from anabranch.server.pulsar.registry import Later, command
from anabranch.server.pulsar.topic_access import (
    catch_up,
    check_listener,
    check_namespace,
    partitions_of,
    topic_name,
)
from anabranch.wire.pulsar import commands_pb2 as pb


def lookup_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.LookupResponse(
        request_id=request.request_id, response=pb.LookupResponse.Failed, error=code, message=message
    )
    return pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookup_response=told)


def metadata_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.PartitionedMetadataResponse(
        request_id=request.request_id,
        response=pb.PartitionedMetadataResponse.Failed,
        error=code,
        message=message,
    )
    return pb.BaseCommand(
        type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE, partitioned_metadata_response=told
    )


@command(pb.BaseCommand.LOOKUP, refusal=lookup_refused)
def lookup(request: pb.Lookup, connection: PulsarConnection) -> Later:
    name = topic_name(request.topic)
    check_namespace(connection.services, name)
    check_listener(request.advertised_listener_name)
    return _lookup(request, name, connection)


async def _lookup(request: pb.Lookup, name: TopicName, connection: PulsarConnection) -> None:
    services = connection.services
    await catch_up(services, name)
    owner = await find_owner(services, name)
    told = pb.LookupResponse(
        request_id=request.request_id,
        response=pb.LookupResponse.Connect,
        broker_service_url=services.service_url if owner is None else url_of(owner),
        authoritative=True,
        # Of one broker the client stays on the address that it was given.
        proxy_through_service_url=services.is_alone,
    )
    connection.send(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookup_response=told))


@command(pb.BaseCommand.PARTITIONED_METADATA, refusal=metadata_refused)
def partitioned_metadata(request: pb.PartitionedMetadata, connection: PulsarConnection) -> Later:
    return _metadata(request, connection)


async def _metadata(request: pb.PartitionedMetadata, connection: PulsarConnection) -> None:
    count = await partitions_of(
        connection.services, topic_name(request.topic), may_create=request.metadata_auto_creation_enabled
    )
    told = pb.PartitionedMetadataResponse(
        request_id=request.request_id, response=pb.PartitionedMetadataResponse.Success, partitions=count
    )
    connection.send(
        pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE, partitioned_metadata_response=told)
    )
