"""Messages on their way into a topic, and what became of them.

The server reads many SEND frames in one go and gives those of a producer to its topic together:

    published = topic.publish(producer, sends)
    receipts for sends[:len(published.offsets)], in order
    if published.refused: SEND_ERROR for the next one, and publish the rest again

so that one write stores them all and one answer carries their receipts.
"""

import asyncio
from typing import NamedTuple

from anabranch.base.errors import AnabranchError

METADATA_BYTES = 10 * 1024
"""What an entry may have beyond a message of the largest size; Pulsar's own figure."""

DUPLICATE = -1
"""The offset of a message that was there before; its receipt says (-1, -1) as Pulsar's does."""


class Send(NamedTuple):
    """One entry as a SEND frame brought it."""

    sequence_id: int
    highest_sequence_id: int  # of a batch's last message; `sequence_id` where the client says none
    messages: int  # num_messages_in_batch, 1 for a single message or a chunk
    publish_time_ms: int
    payload: memoryview  # from 0x0e01 (or the metadata's size) on, checksum verified
    is_middle_chunk: bool = False  # a chunk, and not the last of its message: never a duplicate
    is_chunk: bool = False
    deliver_at_ms: int = 0  # 0: at once
    is_encrypted: bool = False


class Published(NamedTuple):
    offsets: list[int]  # entry ids, DUPLICATE where it was one; receipts of these are due
    ledger: int
    acknowledged: "asyncio.Future[None] | None"  # receipts wait for it, if there is one
    refused: AnabranchError | None  # what happened to the send after those
    pause_s: float  # how long the connection is not to be read: the publish rate is spent
