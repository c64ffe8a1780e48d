"""Subscriptions of topics: made, listed, moved, deleted.

Of a partitioned topic all partitions have them; what is said to the topic is said to each partition.
"""

from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.parts import one_part, parts, stored_parts
from anabranch.admin.routes import delete, get, post, put
from anabranch.admin.topics import TOPIC
from anabranch.base.errors import OffsetOutOfRange
from anabranch.partition.entries import EntryReader
from anabranch.server.pulsar.topic_access import open_topic
from anabranch.subscriptions.subscription import Subscription
from anabranch.topics.errors import SubscriptionNotFound
from anabranch.topics.topic import Topic

ONE = TOPIC + "/subscription/{subscription}"
_END = (1 << 63) - 1


class Position(msgspec.Struct, rename="camel"):
    """A message; -1 is before the first, the largest number there is after the last."""

    ledger_id: int = _END
    entry_id: int = _END
    partition_index: int = -1
    batch_index: int = -1
    is_excluded: bool | None = None
    excluded: bool | None = None
    properties: dict[str, str] | None = None

    @property
    def is_latest(self) -> bool:
        return self.entry_id >= _END

    @property
    def is_earliest(self) -> bool:
        return self.entry_id < 0


def offset_of(topic: Topic, position: Position) -> int:
    """Where reading begins that is to begin at a position."""
    if position.is_latest:
        return topic.end
    if position.is_earliest:
        return topic.start
    offset = position.entry_id + max(0, position.batch_index)
    if not topic.start <= offset < topic.end:
        return min(max(offset, topic.start), topic.end)
    if not (position.excluded or position.is_excluded):
        return offset
    if position.batch_index >= 0:
        return offset + 1
    try:
        return EntryReader(topic.partition).bounds(offset)[1]
    except OffsetOutOfRange:
        return topic.end


def _found(call: Call, topic: Topic) -> Subscription:
    return topic.subscriptions.get(call.path["subscription"]).subscription


async def _subscriptions(call: Call, doing: str) -> list[tuple[Topic, Subscription]]:
    """The subscription that the path names, on every partition that has it."""
    found = []
    for topic in await stored_parts(call, doing):
        subscription = topic.subscriptions.find(call.path["subscription"])
        if subscription is not None:
            found.append((topic, subscription))
    if not found:
        raise SubscriptionNotFound(
            f"Subscription {call.path['subscription']} not found for topic {call.topic_name.pulsar}"
        )
    return found


@get(TOPIC + "/subscriptions", answer=list[str])
async def names(call: Call) -> list[str]:
    """The subscriptions of a topic."""
    found: set[str] = set()
    for topic in await parts(call):
        if isinstance(topic, Topic):
            found |= {held.subscription.name for held in topic.subscriptions}
        else:
            found |= set(topic.subscriptions)
    return sorted(found)


@put(ONE, body=Position | None)
async def create(call: Call) -> None:
    """Make a subscription, at the end of the topic or where the body says."""
    name, at = call.path["subscription"], call.body or Position()
    pulsar = call.services.pulsar
    if pulsar.catalog.find(call.topic_name) is None and pulsar.catalog.locate(call.topic_name) is None:
        await open_topic(pulsar, call.topic_name, may_create=True)
    topics = await stored_parts(call, "Create subscription")
    if all(topic.subscriptions.find(name) is not None for topic in topics):
        raise Refused(409, "Subscription already exists for topic")
    for topic in topics:
        if topic.subscriptions.find(name) is None:
            await topic.subscriptions.create(name, offset_of(topic, at), at.properties or {})


@delete(ONE, query=("force",))
async def remove(call: Call) -> None:
    """Delete a subscription; refused while it has consumers, unless forced."""
    name, force = call.path["subscription"], call.flag("force")
    found = [topic for topic in await parts(call) if _has(topic, name)]
    if not found:
        raise SubscriptionNotFound("Subscription not found")
    for topic in found:
        consumers = (
            topic.subscriptions.get(name).subscription.consumers
            if isinstance(topic, Topic)
            else topic.subscriptions[name].consumers
        )
        if consumers and not force:
            raise Refused(412, "Subscription has active connected consumers")
    for topic in found:
        await topic.unsubscribe(name, force=force)


def _has(topic: Any, name: str) -> bool:
    if isinstance(topic, Topic):
        return topic.subscriptions.find(name) is not None
    return name in topic.subscriptions


# --- moving


async def _advance(topic: Topic, subscription: Subscription, end: int) -> None:
    subscription.advance_to(end)
    await topic.save(subscription)


@post(ONE + "/skip_all")
async def skip_all(call: Call) -> None:
    """Skip everything that a subscription has not read."""
    for topic, subscription in await _subscriptions(call, "Skip messages"):
        await _advance(topic, subscription, topic.end)


@post(ONE + "/skip/{count}")
async def skip(call: Call) -> None:
    """Skip so many messages."""
    topic = await one_part(call, "Skip messages")
    subscription = _found(call, topic)
    count = call.path_number("count")
    if count < 0:
        raise Refused(412, "a number of messages to skip is 0 or more")
    await _advance(topic, subscription, after_unacked(subscription, count, topic.end))


def after_unacked(subscription: Subscription, count: int, end: int) -> int:
    """The offset below which `count` messages are not acknowledged, or the end if there are fewer."""
    cursor = subscription.cursor
    low, high = cursor.mark_delete, end
    while low < high:
        middle = (low + high) // 2
        if cursor.backlog_in(cursor.mark_delete, middle) < count:
            low = middle + 1
        else:
            high = middle
    return low


@post(ONE + "/expireMessages/{seconds}")
async def expire(call: Call) -> None:
    """Skip what is older than so many seconds."""
    before_ms = _before_ms(call)
    for topic, subscription in await _subscriptions(call, "Expire messages"):
        await _advance(topic, subscription, await topic.offset_for_time(before_ms))


@post(ONE + "/expireMessages", body=Position)
async def expire_to(call: Call) -> None:
    """Skip what lies before a message."""
    topic = await one_part(call, "Expire message at position")
    await _advance(topic, _found(call, topic), offset_of(topic, call.body))


@post(TOPIC + "/all_subscription/expireMessages/{seconds}")
async def expire_all(call: Call) -> None:
    """Skip what is older than so many seconds, for every subscription."""
    before_ms = _before_ms(call)
    for topic in await stored_parts(call, "Expire messages for all subscriptions"):
        end = await topic.offset_for_time(before_ms)
        for held in topic.subscriptions:
            await _advance(topic, held.subscription, end)


def _before_ms(call: Call) -> int:
    seconds = call.path_number("seconds")
    if seconds < 0:
        raise Refused(412, "an age is 0 seconds or more")
    return call.services.pulsar.clock.now_ms() - seconds * 1000


@post(ONE + "/resetcursor/{timestamp}")
async def reset_to_time(call: Call) -> None:
    """Let a subscription go on from the first message at or after a time, in milliseconds."""
    timestamp_ms = call.path_number("timestamp")
    for topic, subscription in await _subscriptions(call, "Reset-cursor"):
        await topic.seek(subscription, await topic.offset_for_time(timestamp_ms))


@post(ONE + "/resetcursor", body=Position)
async def reset_to(call: Call) -> None:
    """Let a subscription go on from a message."""
    at: Position = call.body
    found = await _subscriptions(call, "Reset-cursor")
    if not (at.is_latest or at.is_earliest) and len(found) > 1:
        raise Refused(405, "Reset-cursor at position is not allowed for partitioned-topic")
    for topic, subscription in found:
        await topic.seek(subscription, offset_of(topic, at))


# --- properties


@get(ONE + "/properties", answer=dict[str, str])
async def properties(call: Call) -> dict[str, str]:
    """A subscription's properties."""
    found: dict[str, str] = {}
    for topic, subscription in await _subscriptions(call, "Subscription properties"):
        durable = topic.subscriptions.get(subscription.name).durable
        if durable is not None:
            found |= durable.document.properties
    return found


@put(ONE + "/properties", body=dict[str, str] | None)
async def set_properties(call: Call) -> None:
    """Replace a subscription's properties."""
    for topic, subscription in await _subscriptions(call, "Subscription properties"):
        await topic.subscriptions.set_properties(subscription.name, call.body or {})
