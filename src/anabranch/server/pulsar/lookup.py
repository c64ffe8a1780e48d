"""LOOKUP: which broker serves a topic.  PARTITIONED_METADATA: how many partitions it has.

A topic that is not partitioned has 0, and so has one that is not there yet but may be made by the first who
uses it; where such topics are made partitioned, asking makes it.  A client that asks without wanting that
(`metadata_auto_creation_enabled=false`) is told that there is none.
"""

from typing import Any

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import Later, command
from anabranch.server.pulsar.topic_access import check_listener, check_namespace, partitions_of, topic_name
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
def lookup(request: pb.Lookup, connection: PulsarConnection) -> None:
    services = connection.services
    check_namespace(services, topic_name(request.topic))
    check_listener(request.advertised_listener_name)
    told = pb.LookupResponse(
        request_id=request.request_id,
        response=pb.LookupResponse.Connect,
        broker_service_url=services.service_url,
        authoritative=True,
        proxy_through_service_url=True,  # the client stays on the address that it was given
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
