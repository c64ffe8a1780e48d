"""Backlog analysis: unacknowledged messages counted, a message id by its index, retention applied at once.

An analysis reads the log, so it is bounded in entries and in time; the answer says if it was cut off.
"""

from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.messages import entry_at, read_entries
from anabranch.admin.parts import one_part, stored_parts
from anabranch.admin.routes import get, post, route
from anabranch.admin.subscriptions import ONE, Position, offset_of
from anabranch.admin.topics import TOPIC, MessageId
from anabranch.base.errors import NotFound

_MOST_ENTRIES = 10_000  # subscriptionBacklogScanMaxEntries of Pulsar
_MOST_S = 120.0  # subscriptionBacklogScanMaxTimeMs


class BacklogAnalysis(msgspec.Struct, rename="camel"):
    """There are no filters here, so all is accepted."""

    entries: int = 0
    messages: int = 0
    filter_rejected_entries: int = 0
    filter_accepted_entries: int = 0
    filter_rescheduled_entries: int = 0
    filter_rejected_messages: int = 0
    filter_accepted_messages: int = 0
    filter_rescheduled_messages: int = 0
    aborted: bool = False
    first_message_id: str | None = None
    last_message_id: str | None = None


@route("POST", ONE + "/analyzeBacklog", body=Position | None, answer=BacklogAnalysis)
async def analyze(call: Call) -> BacklogAnalysis:
    """Count what a subscription has not acknowledged, from a message on if one is given."""
    topic = await one_part(call, "Analyze backlog")
    cursor = topic.subscriptions.get(call.path["subscription"]).cursor
    clock = call.services.pulsar.clock
    deadline_s = clock.monotonic() + _MOST_S
    found = BacklogAnalysis()
    start = cursor.mark_delete
    if call.body is not None and not call.body.is_latest:
        start = max(start, offset_of(topic, call.body))
    offset, end = start, topic.end
    while offset < end:
        read = await read_entries(topic, offset)
        for entry in read.entries:
            left = cursor.backlog_in(entry.offset, entry.end)
            if not left:
                continue
            found.entries += 1
            found.messages += left
            found.last_message_id = f"{entry.ledger}:{entry.offset}"
            found.first_message_id = found.first_message_id or found.last_message_id
        if found.entries >= _MOST_ENTRIES or clock.monotonic() > deadline_s or read.next_offset <= offset:
            found.aborted = read.next_offset < end
            break
        offset = read.next_offset
    found.filter_accepted_entries, found.filter_accepted_messages = found.entries, found.messages
    return found


@get(TOPIC + "/getMessageIdByIndex", answer=MessageId, query=("index",))
async def by_index(call: Call) -> Any:
    """The id of the message of that number in its topic."""
    topic = await one_part(call, "Get message ID by index")
    index = call.number("index", -1)
    if index < 0:
        raise Refused(412, f"Invalid message index: {index}")
    entry = await entry_at(topic, index)
    if entry is None:
        raise NotFound("Message ID not found")
    return MessageId(entry.ledger, entry.offset, topic.partition_index)


@post(TOPIC + "/trim")
async def trim(call: Call) -> None:
    """Let go now of what retention does not keep any more."""
    for topic in await stored_parts(call, "Trim topic"):
        call.services.upkeep.retain(topic.partition.replica)
