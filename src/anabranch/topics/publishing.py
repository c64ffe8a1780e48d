"""Publishing: messages on their way into a topic's partition, refused, known as duplicates, or stored.

    sends ─> may they? ─> deduplication ─> one write for all that fit a segment ─> offsets, in order

It is all one turn of the loop.  What the log could not take is refused with its reason, the rest of the
sends is given back to the caller with it; what deduplication learns it learns from what is in the log.
"""

import asyncio
from collections.abc import Callable, Sequence

from anabranch.base.clock import Clock
from anabranch.base.errors import AnabranchError, TooLarge, Unavailable
from anabranch.base.rate_limit import RateLimit
from anabranch.groups.effects import Producer as TxnProducer
from anabranch.partition.partition import Partition
from anabranch.records.batch import HEADER_SIZE
from anabranch.topics.deduplication import Deduplication
from anabranch.topics.errors import NotAllowed, NotEncrypted, ProducerClosed
from anabranch.topics.producer import Producer
from anabranch.topics.publish import DUPLICATE, Published, Send

_MOST_BYTES = 4 << 20  # in one write: longer ones hold the loop


class Publishing:
    __slots__ = (
        "_clock",
        "_partition",
        "bytes_in",
        "deduplication",
        "encrypted_only",
        "entries_in",
        "limit",
        "max_delay_ms",
        "max_message_bytes",
        "messages_in",
        "on_stored",
        "refuse",
        "times_limited",
    )

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self.deduplication: Deduplication | None = None
        self.limit: RateLimit | None = None
        self.max_message_bytes = 1 << 62
        self.max_delay_ms: int | None = None
        self.encrypted_only = False
        self.refuse: AnabranchError | None = None  # why nobody may send: terminated, closing
        self.messages_in = self.bytes_in = self.entries_in = self.times_limited = 0
        self.on_stored: Callable[[], None] = lambda: None

    def publish(
        self, producer: Producer, sends: Sequence[Send], within: TxnProducer | None = None
    ) -> Published:
        """Store `sends`, in the transaction that is open under `within` if it is given."""
        error = self.refuse
        if error is None and producer.is_closed:
            error = ProducerClosed("the producer is closed; open it again")
        if error is not None:
            return self._published([], None, error)
        if self.max_delay_ms is not None or self.encrypted_only:
            for good, send in enumerate(sends):
                error = self._wrong_with(send)
                if error is not None:
                    published = self._publish(producer, sends[:good], within)
                    return published if published.refused else published._replace(refused=error)
        return self._publish(producer, sends, within)

    def _wrong_with(self, send: Send) -> AnabranchError | None:
        if self.encrypted_only and not send.is_encrypted:
            return NotEncrypted()
        if self.max_delay_ms is not None and send.deliver_at_ms > self._clock.now_ms() + self.max_delay_ms:
            return NotAllowed(f"Exceeds max allowed delivery delay of {self.max_delay_ms} milliseconds")
        return None

    def _publish(self, producer: Producer, sends: Sequence[Send], within: TxnProducer | None) -> Published:
        deduplication = self.deduplication
        if deduplication is None:
            offsets, acknowledged, error = self._store(producer, sends, within)
            return self._published(offsets, acknowledged, error)
        new, where = deduplication.sift(producer.name, sends)
        stored, acknowledged, error = self._store(producer, new, within)
        deduplication.stored(producer.name, new[: len(stored)], self._partition.log_end)
        self.on_stored()
        if len(new) != len(sends) and acknowledged is None:
            acknowledged = self._partition.acknowledgement(
                self._partition.log_end
            )  # the originals may still be on their way
        if error is not None:
            where = where[: where.index(len(stored))]
        offsets = [DUPLICATE if i == DUPLICATE else stored[i] for i in where]
        return self._published(offsets, acknowledged, error)

    def _store(
        self, producer: Producer, sends: Sequence[Send], within: TxnProducer | None
    ) -> tuple[list[int], "asyncio.Future[None] | None", AnabranchError | None]:
        """The offsets of as many as could be stored, and what was wrong with the one after them."""
        offsets: list[int] = []
        acknowledged: asyncio.Future[None] | None = None
        # No more than one message may have: so one that is too large comes alone, and is seen.
        most = min(self._partition.config.segment_bytes, _MOST_BYTES, self.max_message_bytes + HEADER_SIZE)
        while len(offsets) < len(sends):
            part, size = _that_fit(sends, len(offsets), most)
            if len(part) == 1 and len(part[0].payload) > self.max_message_bytes:
                largest = self.max_message_bytes
                return offsets, acknowledged, TooLarge(f"the message is {size} bytes, the limit is {largest}")
            try:
                appended = self._partition.append_entries(part, within)
            except AnabranchError as error:
                return offsets, acknowledged, error
            except OSError as error:
                return offsets, acknowledged, Unavailable(f"the log could not be written: {error}")
            offsets += appended.offsets
            acknowledged = appended.acknowledged
            self._count(producer, part, size)
        return offsets, acknowledged, None

    def _count(self, producer: Producer, sends: Sequence[Send], size: int) -> None:
        messages = sum([send.messages for send in sends])
        size -= HEADER_SIZE * len(sends)
        self.entries_in += len(sends)
        self.messages_in += messages
        self.bytes_in += size
        producer.messages_in += messages
        producer.bytes_in += size
        if sends[0].is_chunk or sends[-1].is_chunk:
            producer.chunked_messages += sum([send.is_chunk for send in sends])
        if self.limit is not None:
            self.limit.take(messages, size)

    def _published(
        self, offsets: list[int], acknowledged: "asyncio.Future[None] | None", error: AnabranchError | None
    ) -> Published:
        pause_s = 0.0 if self.limit is None else self.limit.wait_s()
        if pause_s:
            self.times_limited += 1
        return Published(offsets, self._partition.leader_epoch, acknowledged, error, pause_s)


def _that_fit(sends: Sequence[Send], start: int, limit: int) -> tuple[Sequence[Send], int]:
    """The sends from `start` on that fit into `limit` bytes with their headers, one at least; their size."""
    if not start:
        total = sum([len(send.payload) for send in sends]) + HEADER_SIZE * len(sends)
        if total <= limit:
            return sends, total
    end, total = start, 0
    for send in sends[start:]:
        size = HEADER_SIZE + len(send.payload)
        if end > start and total + size > limit:
            break
        total += size
        end += 1
    return sends[start:end], total
