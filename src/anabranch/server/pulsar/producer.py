"""PRODUCER: open a producer under an id of the client's; answered with PRODUCER_SUCCESS.

    name               the client's own, or one that nobody has
    access mode        shared, or alone: at once, when the others are gone, or by fencing them off; who
                       waits for its turn is told so first (`producer_ready=false`)
    initial            a subscription that is made with the topic, so that nothing is missed before its
    subscription       first consumer comes

A producer that is open under the id already is answered as if it had just been opened.
"""

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.opening import Opening
from anabranch.server.pulsar.properties import metadata_of, name_of
from anabranch.server.pulsar.registry import Later, command
from anabranch.server.pulsar.schema import schema_of_producer
from anabranch.server.pulsar.topic_access import open_topic, topic_name
from anabranch.topics.errors import NotAllowed, TopicClosed
from anabranch.topics.producer import AccessMode, Joined, Producer
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.PRODUCER)
def producer(request: pb.Producer, connection: PulsarConnection) -> Later:
    known = connection.producers.begin(request.producer_id, request.request_id)
    if not isinstance(known, Opening):
        _succeed(connection, request.request_id, known.producer, Joined(-1, None), b"")
        return None
    return _open(request, connection, known)


async def _open(request: pb.Producer, connection: PulsarConnection, opening: Opening) -> None:
    try:
        opening.begin()
        await _join(request, connection)
    finally:
        connection.producers.failed(request.producer_id, opening)


async def _join(request: pb.Producer, connection: PulsarConnection) -> None:
    services = connection.services
    name = topic_name(request.topic)
    topic = await open_topic(services, name, may_create=True)
    schema_version = await schema_of_producer(
        services, topic, request.schema if request.HasField("schema") else None
    )
    if request.initial_subscription_name:
        await _make_subscription(topic, name_of("subscription", request.initial_subscription_name))
    made = Producer(
        request.producer_id,
        name_of("producer", request.producer_name) or services.topics.new_producer_name(),
        connection.producers,
        access_mode=AccessMode(request.producer_access_mode),
        epoch=request.epoch,
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        is_named_by_client=bool(request.producer_name) and request.user_provided_producer_name,
        is_encrypted=request.encrypted,
        metadata=metadata_of(request.metadata),
        address=connection.link.remote,
        client_version=connection.client_version,
        connected_since_ms=services.clock.now_ms(),
        supports_partial=connection.supports_partial_producers,
    )
    try:
        joined = await topic.add_producer(made)
    except BaseException:  # also when its client has gone or closed it meanwhile
        topic.remove_producer(made)
        raise
    if made.is_closed:
        raise TopicClosed(f"{topic.full_name} was closed meanwhile; look it up again")
    connection.producers.opened(request.producer_id, made, topic)
    _succeed(connection, request.request_id, made, joined, schema_version)


async def _make_subscription(topic: AnyTopic, name: str) -> None:
    """The subscription that is to be there from the first message on.  Nothing is kept for it elsewhere."""
    if not isinstance(topic, Topic) or topic.subscriptions.find(name) is not None:
        return
    if not topic.rules.auto_create_subscriptions:
        raise NotAllowed(f"the initial subscription {name} does not exist, and using it does not create it")
    await topic.create_subscription(name, from_earliest=True)


def _succeed(
    connection: PulsarConnection, request_id: int, made: Producer, joined: Joined, schema_version: bytes
) -> None:
    told = pb.ProducerSuccess(
        request_id=request_id,
        producer_name=made.name,
        last_sequence_id=joined.last_sequence_id,
        schema_version=schema_version,
        producer_ready=True,
    )
    if joined.topic_epoch is not None:
        told.topic_epoch = joined.topic_epoch
    connection.send(pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS, producer_success=told))
