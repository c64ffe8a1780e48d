"""A topic (one partition of it) as Pulsar clients attach to it.

PRODUCER   await topic.add_producer(producer) -> Joined          topic.remove_producer(producer)
SEND       topic.publish(producer, sends) -> Published
SUBSCRIBE  await topic.attach(consumer, wanted) -> Subscription  await topic.detach(subscription, consumer)
SEEK       await topic.offset_for_time(ms), topic.offset_of(position) -> offset for Subscription.seek
"""

from typing import NamedTuple, Protocol

from anabranch.base.ids import TopicName
from anabranch.topics.producer import Joined, Producer
from anabranch.topics.publish import Published, Send


class Wanted(NamedTuple):
    """What a SUBSCRIBE asks for."""

    subscription: str
    kind: int  # subscriptions.SubscriptionType: 0 exclusive, 1 shared, 2 failover, 3 key_shared
    is_durable: bool
    start: tuple[int, int] | None  # (entry id, batch index) of start_message_id; (-1, -1) earliest
    from_earliest: bool  # initialPosition, for a new durable subscription
    rollback_s: int  # start_message_rollback_duration_sec
    properties: dict[str, str]  # of the subscription
    may_create: bool  # force_topic_creation / auto creation of subscriptions


class Topic(Protocol):
    name: TopicName
    partition_index: int  # -1 if the topic is not partitioned: what message ids carry
    full_name: str  # with -partition-N

    async def add_producer(self, producer: Producer) -> Joined: ...

    def remove_producer(self, producer: Producer) -> None: ...

    def publish(self, producer: Producer, sends: list[Send]) -> Published: ...

    async def offset_for_time(self, timestamp_ms: int) -> int: ...

    def last_message(self) -> tuple[int, int, int]:
        """(ledger, entry id, batch index) of the last message; (-1, -1, -1) if there is none."""
