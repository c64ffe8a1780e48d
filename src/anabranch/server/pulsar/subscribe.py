"""SUBSCRIBE: open a consumer under an id of the client's; answered with SUCCESS.

A reader is a consumer of a subscription that is not durable and says where it starts.  A consumer that is
open under the id already is answered as if it had just been opened.
"""

from anabranch.base.errors import AnabranchError
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.consumers import Attached, ConsumerChannel
from anabranch.server.pulsar.errors import SubscriptionWithoutName, code_of
from anabranch.server.pulsar.message_ids import start_of
from anabranch.server.pulsar.opening import Opening
from anabranch.server.pulsar.properties import metadata_of, name_of
from anabranch.server.pulsar.registry import Later, command
from anabranch.server.pulsar.schema import schema_of_consumer
from anabranch.server.pulsar.topic_access import open_topic, topic_name
from anabranch.subscriptions.consumer import Consumer, HashRange, KeySharing
from anabranch.topics.errors import TopicClosed
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic, Wanted
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.SUBSCRIBE)
def subscribe(request: pb.Subscribe, connection: PulsarConnection) -> Later:
    known = connection.consumers.begin(request.consumer_id, request.request_id)
    if not isinstance(known, Opening):
        connection.succeed(request.request_id)
        return None
    return _open(request, connection, known)


async def _open(request: pb.Subscribe, connection: PulsarConnection, opening: Opening) -> None:
    try:
        opening.begin()
        await _attach(request, connection)
    except AnabranchError as error:
        if code_of(error) == pb.ServerError.ServiceNotReady and not connection.services.is_alone:
            connection.spawn(_send_away(request, connection))
        raise
    finally:
        connection.consumers.failed(request.consumer_id, opening)


async def _send_away(request: pb.Subscribe, connection: PulsarConnection) -> None:
    """After the refusal: a C++ client keeps to a connection on which its first SUBSCRIBE was refused, and
    waits there for its time to be over, unless it is told that the consumer is closed."""
    connection.consumers.send_away(request.consumer_id, request.topic)


async def _attach(request: pb.Subscribe, connection: PulsarConnection) -> None:
    services = connection.services
    if not request.subscription:
        raise SubscriptionWithoutName("Empty subscription name")
    name_of("subscription", request.subscription)
    metadata = metadata_of(request.metadata)
    topic = await open_topic(services, topic_name(request.topic), may_create=request.force_topic_creation)
    await schema_of_consumer(services, topic, request.schema if request.HasField("schema") else None)
    channel = ConsumerChannel(connection, request.consumer_id, topic.partition_index)
    consumer = Consumer(
        request.consumer_id,
        name_of("consumer", request.consumer_name),
        channel,
        priority=request.priority_level,
        key_sharing=_key_sharing(request.key_shared) if request.HasField("key_shared") else None,
        properties=metadata,
        address=connection.link.remote,
        client_version=connection.client_version,
        connected_since_ms=services.clock.now_ms(),
        reads_compacted=request.read_compacted,
    )
    if request.HasField("consumer_epoch"):
        consumer.epoch = request.consumer_epoch
    try:
        subscription = await topic.attach(consumer, _wanted(request))
    except BaseException:  # also when its client has gone or closed it meanwhile
        connection.spawn(_undo(topic, request.subscription, consumer))
        raise
    if not consumer.is_attached:
        raise TopicClosed(f"{topic.full_name} was closed meanwhile; look it up again")
    connection.consumers.opened(request.consumer_id, Attached(consumer, channel, subscription, topic))
    connection.succeed(request.request_id)


async def _undo(topic: AnyTopic, name: str, consumer: Consumer) -> None:
    """Whatever of attaching has been done already."""
    if isinstance(topic, Topic):
        subscription = topic.subscriptions.find(name)
        if subscription is not None:
            await topic.detach(subscription, consumer)
    elif name in topic.subscriptions:
        await topic.detach(topic.subscriptions[name], consumer)


def _wanted(request: pb.Subscribe) -> Wanted:
    start = None
    if request.HasField("start_message_id"):
        start = (start_of(request.start_message_id), request.start_message_id.batch_index)
    return Wanted(
        subscription=request.subscription,
        kind=int(request.type),
        is_durable=request.durable,
        start=start,
        from_earliest=request.initial_position == pb.Subscribe.Earliest,
        rollback_s=request.start_message_rollback_duration_s,
        properties={pair.key: pair.value for pair in request.subscription_properties},
        may_create=True,
    )


def _key_sharing(told: pb.KeySharedMeta) -> KeySharing:
    ranges = None
    if told.mode == pb.KeySharedMode.STICKY:
        ranges = [HashRange(part.start, part.end) for part in told.hash_ranges]
    return KeySharing(ranges, told.allow_out_of_order_delivery)
