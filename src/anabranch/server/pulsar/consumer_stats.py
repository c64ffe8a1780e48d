"""CONSUMER_STATS: how a consumer is doing."""

from datetime import UTC, datetime
from typing import Any

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb

_KINDS = ("Exclusive", "Shared", "Failover", "Key_Shared")


def stats_refused(request: Any, code: pb.ServerError, message: str) -> pb.BaseCommand:
    told = pb.ConsumerStatsResponse(request_id=request.request_id, error_code=code, error_message=message)
    return pb.BaseCommand(type=pb.BaseCommand.CONSUMER_STATS_RESPONSE, consumer_stats_response=told)


@command(pb.BaseCommand.CONSUMER_STATS, refusal=stats_refused)
def consumer_stats(request: pb.ConsumerStats, connection: PulsarConnection) -> None:
    attached = connection.consumers.get(request.consumer_id)
    consumer, subscription = attached.consumer, attached.subscription
    since = datetime.fromtimestamp(consumer.connected_since_ms / 1000, UTC)
    told = pb.ConsumerStatsResponse(
        request_id=request.request_id,
        consumer_name=consumer.name,
        available_permits=max(0, consumer.permits),
        unacked_messages=consumer.unacked,
        blocked_consumer_on_unacked_msgs=consumer.is_blocked,
        address=consumer.address,
        connected_since=since.isoformat(timespec="milliseconds"),
        msg_backlog=attached.backlog,
    )
    if subscription.kind is not None:
        told.type = _KINDS[subscription.kind]
    connection.send(pb.BaseCommand(type=pb.BaseCommand.CONSUMER_STATS_RESPONSE, consumer_stats_response=told))
