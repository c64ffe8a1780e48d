"""Message peeking: messages of a topic, looked at without being consumed.

A batch is answered as a whole, as it is stored; what the client needs to take it apart is in the headers.
"""

import asyncio
import base64
import json
from datetime import UTC, datetime
from typing import Any

from anabranch.admin.call import Call, Message
from anabranch.admin.errors import Refused
from anabranch.admin.parts import one_part
from anabranch.admin.routes import get
from anabranch.admin.subscriptions import ONE
from anabranch.admin.topics import TOPIC, MessageId
from anabranch.base.errors import NotFound
from anabranch.partition.entries import Entries, EntryReader
from anabranch.records.entries import Entry, read_metadata
from anabranch.records.entry_payloads import payload_of, uncompressed
from anabranch.subscriptions.cursor import Cursor
from anabranch.topics.errors import SubscriptionNotFound
from anabranch.topics.topic import Topic

_READ_BYTES = 1 << 20
_LATEST_MS = 253_402_300_799_000  # the end of the year 9999: clients say what they like


@get(ONE + "/position/{position}", answer=None)
async def peek(call: Call) -> Message:
    """The nth message, counted in entries from 1, that a subscription has not acknowledged."""
    topic = await one_part(call, "Peek messages")
    name = call.path["subscription"]
    subscription = topic.subscriptions.find(name)
    if subscription is None and topic.rules.auto_create_subscriptions:  # as Pulsar does
        subscription = await topic.create_subscription(name, from_earliest=True)
    if subscription is None:
        raise SubscriptionNotFound(f"Subscription {name} not found for topic {topic.full_name}")
    position = max(1, call.path_number("position"))
    return await _message(call, await _unacked(topic, subscription.cursor, position))


async def _unacked(topic: Topic, cursor: Cursor, position: int) -> Entry:
    offset = cursor.mark_delete
    while True:
        read = await read_entries(topic, offset)
        for entry in read.entries:
            if not cursor.all_acked(entry.offset, entry.end):
                position -= 1
                if not position:
                    return entry
        if read.next_offset <= offset or read.next_offset >= topic.end:
            raise NotFound("Message not found")
        offset = read.next_offset


async def read_entries(topic: Topic, offset: int, max_bytes: int = _READ_BYTES) -> Entries:
    """Entries from an offset on, once the disk has them.  Others have their turn: callers may read much."""
    await asyncio.sleep(0)
    reader = EntryReader(topic.partition)
    while True:
        read = reader.read(offset, max_bytes)
        if read.pending is None:
            return read
        await read.pending


@get(TOPIC + "/ledger/{ledger}/entry/{entry}", answer=None)
async def by_id(call: Call) -> Message:
    """The message of an id."""
    topic = await one_part(call, "GetMessageById")
    ledger, offset = call.path_number("ledger"), call.path_number("entry")
    entry = await entry_at(topic, offset)
    if entry is None or entry.offset != offset or entry.ledger != ledger:
        raise NotFound("Message id not found")
    return await _message(call, entry)


async def entry_at(topic: Topic, offset: int) -> Entry | None:
    """The entry that holds an offset, or the first after it; None if there is none."""
    if not topic.start <= offset < topic.end:
        return None
    read = await read_entries(topic, offset, 1)
    while not read.entries and read.next_offset < topic.end:
        read = await read_entries(topic, read.next_offset, 1)
    return read.entries[0] if read.entries else None


@get(TOPIC + "/examinemessage", answer=None, query=("initialPosition", "messagePosition"))
async def examine(call: Call) -> Message:
    """The nth entry from the first or the last one."""
    topic = await one_part(call, "Examine messages")
    position = max(1, call.number("messagePosition", 1))
    if topic.start >= topic.end:
        raise Refused(412, "Could not examine messages due to the total message is zero")
    if call.query.get("initialPosition", "latest") == "earliest":
        found = await _unacked(topic, Cursor(topic.start), position)
        return await _message(call, found)
    entry, offset = None, topic.end
    for _ in range(position):
        if offset <= topic.start:
            break
        entry = await entry_at(topic, offset - 1)
        if entry is None:
            break
        offset = entry.offset
    if entry is None:
        raise NotFound("Message not found")
    return await _message(call, entry)


@get(TOPIC + "/messageid/{timestamp}", answer=MessageId)
async def at_time(call: Call) -> Any:
    """The id of the first message published at or after a time, in milliseconds."""
    topic = await one_part(call, "Get message ID by timestamp")
    offset = await topic.offset_for_time(call.path_number("timestamp"))
    entry = await entry_at(topic, offset)
    if entry is None:
        ledger, last, _ = topic.last_message()
        return MessageId(ledger, last, topic.partition_index)
    return MessageId(entry.ledger, entry.offset, topic.partition_index)


async def _message(call: Call, entry: Entry) -> Message:
    """An entry as HTTP's answer: the payload, and what is known of it in headers."""
    metadata = read_metadata(entry.payload)
    payload = payload_of(entry.payload)
    headers = {
        "X-Pulsar-Message-ID": f"{entry.ledger}:{entry.offset}",
        "X-Pulsar-PROPERTY": json.dumps({_text(p.key): _text(p.value) for p in metadata.properties}),
        "X-Pulsar-publish-time": _time(metadata.publish_time),
        "X-Pulsar-Is-Encrypted": str(bool(metadata.encryption_keys)).lower(),
        "X-Pulsar-producer-name": _text(metadata.producer_name),
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-txn-consumable": "true",
    }
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(len(payload))
    for name, field in _TIMES.items():
        if metadata.HasField(field):
            headers[name] = _time(getattr(metadata, field))
    for name, field in _AS_THEY_ARE.items():
        if metadata.HasField(field):
            value = getattr(metadata, field)
            headers[name] = str(value).lower() if isinstance(value, bool) else _text(value)
    for name, field in _BYTES.items():
        if metadata.HasField(field):
            headers[name] = base64.b64encode(getattr(metadata, field)).decode("ascii")
    body = bytes(payload)
    if metadata.compression and not metadata.encryption_keys:
        loop = asyncio.get_running_loop()  # it may be much larger
        body = await loop.run_in_executor(call.services.threads, uncompressed, metadata, payload)
    return Message(body, {name: _header(text) for name, text in headers.items()})


_TIMES = {"X-Pulsar-event-time": "event_time", "X-Pulsar-deliver-at-time": "deliver_at_time"}
_AS_THEY_ARE = {
    "X-Pulsar-null-value": "null_value",
    "X-Pulsar-partition-key": "partition_key",
    "X-Pulsar-partition-key-b64-encoded": "partition_key_b64_encoded",
    "X-Pulsar-uncompressed-size": "uncompressed_size",
    "X-Pulsar-highest-sequence-id": "highest_sequence_id",
    "X-Pulsar-uuid": "uuid",
    "X-Pulsar-num-chunks-from-msg": "num_chunks_from_msg",
    "X-Pulsar-total-chunk-msg-size": "total_chunk_msg_size",
    "X-Pulsar-chunk-id": "chunk_id",
    "X-Pulsar-null-partition-key": "null_partition_key",
}
_BYTES = {
    "X-Pulsar-Base64-schema-version": "schema_version",
    "X-Pulsar-Base64-ordering-key": "ordering_key",
    "X-Pulsar-Base64-encryption-param": "encryption_param",
}


def _time(timestamp_ms: int) -> str:
    """As Pulsar prints it."""
    moment = datetime.fromtimestamp(min(max(timestamp_ms, 0), _LATEST_MS) / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def _text(value: object) -> str:
    """Strings that are not UTF-8 are given as bytes."""
    return str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value)


def _header(text: str) -> str:
    """What a header can hold: no line ends, nothing beyond Latin-1."""
    return "".join(c if c.isprintable() and ord(c) < 256 else "?" for c in text)
