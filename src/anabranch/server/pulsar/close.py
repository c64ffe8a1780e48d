"""CLOSE_PRODUCER and CLOSE_CONSUMER: the client has done with one; SUCCESS.

A producer is closed when its last receipt has gone.  One that is still being opened is given up; one that is
not there is closed already.
"""

import asyncio

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import Later, command
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.CLOSE_PRODUCER)
def close_producer(request: pb.CloseProducer, connection: PulsarConnection) -> Later:
    drained = connection.producers.close(request.producer_id)
    if drained is not None:
        return _closed_after(drained, request.request_id, connection)
    connection.succeed(request.request_id)
    return None


async def _closed_after(done: "asyncio.Future[None]", request_id: int, connection: PulsarConnection) -> None:
    await done
    connection.succeed(request_id)


@command(pb.BaseCommand.CLOSE_CONSUMER)
def close_consumer(request: pb.CloseConsumer, connection: PulsarConnection) -> Later:
    attached = connection.consumers.take(request.consumer_id)
    if attached is None:
        connection.succeed(request.request_id)
        return None
    return _closed_after(connection.spawn(attached.detach()), request.request_id, connection)
