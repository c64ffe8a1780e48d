"""The producers of one connection, and the way of a message from SEND to SEND_RECEIPT.

    SEND, SEND, SEND …  ─ collect ─>  sends of one producer, as they came in one read
                        ─ publish ─>  topic.publish, one write into the log
                        ─ receipts ─> at once, or in order once the log has acknowledged them

Receipts of a producer go out in the order of its messages: while one batch of them waits for the disk,
those after it wait behind it, refusals too.

A message for a producer that is not open closes the connection, as Pulsar does, except shortly after the
broker has closed the producer by itself: the client has not heard yet.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from anabranch.base.errors import AnabranchError, Corrupt, Unavailable
from anabranch.groups.effects import Producer as TxnProducer
from anabranch.records.entries import ChecksumMismatch, count_of, read_metadata, verify
from anabranch.server.pulsar.errors import code_of, message_of
from anabranch.server.pulsar.opening import Opening
from anabranch.server.pulsar.owners import assigned_url
from anabranch.server.pulsar.transactional import transaction_of
from anabranch.topics.producer import Producer
from anabranch.topics.publish import DUPLICATE, Published, Send
from anabranch.topics.registry import AnyTopic
from anabranch.topics.topic import Topic
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.frames import write_frame
from anabranch.wire.pulsar.hot import NO_HIGHEST_SEQUENCE, receipt_head, send_receipt, varint

if TYPE_CHECKING:
    from anabranch.server.pulsar.connection import PulsarConnection

NO_REQUEST = (1 << 64) - 1  # the request id of what no client asked for
FIRST_WITH_CLOSE = 5  # the protocol version from which clients understand CLOSE_* from a broker
_LIVENESS_S = 5.0  # Pulsar's connectionLivenessCheckTimeoutMillis


class Attached:
    """A producer that is open here."""

    __slots__ = ("drained", "head", "id", "producer", "topic", "waiting")

    def __init__(self, id: int, producer: Producer, topic: AnyTopic) -> None:
        self.id = id
        self.producer = producer
        self.topic = topic
        self.head = receipt_head(id)
        self.waiting: deque[_Due] = deque()
        self.drained: asyncio.Future[None] | None = None


class _Due:
    """Receipts, or a refusal, that wait for the log or for those before them."""

    __slots__ = ("acknowledged", "frames", "sends")

    def __init__(self, frames: bytes, sends: list[Send], acknowledged: "asyncio.Future[None] | None") -> None:
        self.frames = frames
        self.sends = sends
        self.acknowledged = acknowledged


class Producers:
    """Also the `ProducerChannel` that topics know these producers by."""

    __slots__ = ("_by_id", "_closed", "_connection", "_whose", "_within", "collected", "pending_sends")

    def __init__(self, connection: "PulsarConnection") -> None:
        self._connection = connection
        self._by_id: dict[int, Attached | Opening] = {}
        self._closed: dict[int, float] = {}  # by the broker, and until when its client may not know
        self._whose: Attached | None = None
        self._within: TxnProducer | None = None  # of what is collected, if that is in a transaction
        self.collected: list[Send] = []
        self.pending_sends = 0

    # --- opening and closing

    def begin(self, id: int, request_id: int) -> Opening | Attached:
        """Take `id` for a producer that is to be opened; the one that is open under it, if there is."""
        known = self._by_id.get(id)
        if isinstance(known, Opening):
            raise Unavailable(f"producer {id} is already being opened on this connection; wait for that")
        if known is not None:
            return known
        self._closed.pop(id, None)
        opening = self._by_id[id] = Opening(request_id)
        return opening

    def opened(self, id: int, producer: Producer, topic: AnyTopic) -> None:
        self._by_id[id] = Attached(id, producer, topic)

    def failed(self, id: int, opening: Opening) -> None:
        if self._by_id.get(id) is opening:
            del self._by_id[id]

    def close(self, id: int) -> "asyncio.Future[None] | None":
        """The client closes a producer; what to wait for until its last receipt has gone, if anything."""
        known = self._by_id.pop(id, None)
        if isinstance(known, Opening):
            known.abandon()
        elif known is not None:
            self._forget(known)
            if known.waiting:
                known.drained = asyncio.get_running_loop().create_future()
                return known.drained
        return None

    def close_all(self) -> None:
        """The broker closes them, and says so."""
        for known in list(self._by_id.values()):
            if isinstance(known, Opening):
                known.abandon()
            else:
                known.topic.remove_producer(known.producer)
                self.close_producer(known.producer)

    def gone(self) -> None:
        """The connection is closed."""
        self.collected.clear()
        for known in list(self._by_id.values()):
            if isinstance(known, Opening):
                known.abandon()
            else:
                self._forget(known)
        self._by_id.clear()

    def _forget(self, attached: Attached) -> None:
        if self._whose is attached:
            self._whose = None
        attached.topic.remove_producer(attached.producer)

    # --- what topics ask (ProducerChannel)

    def producer_waits(self, producer: Producer) -> None:
        opening = self._by_id.get(producer.id)
        if isinstance(opening, Opening):
            told = pb.ProducerSuccess(
                request_id=opening.request_id, producer_name=producer.name, producer_ready=False
            )
            self._connection.send(pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS, producer_success=told))

    def close_producer(self, producer: Producer) -> None:
        known = self._by_id.get(producer.id)
        if not isinstance(known, Attached) or known.producer is not producer:
            return
        del self._by_id[producer.id]
        if self._whose is known:
            self._whose = None
            self.collected.clear()
        connection = self._connection
        if connection.protocol_version < FIRST_WITH_CLOSE:
            connection.hang_up()
            return
        now = connection.services.clock.monotonic()
        while self._closed and next(iter(self._closed.values())) <= now:  # they are in the order of time
            del self._closed[next(iter(self._closed))]
        self._closed[producer.id] = now + connection.services.config.current.pulsar.keep_alive_interval_s
        told = pb.CloseProducer(
            producer_id=producer.id,
            request_id=NO_REQUEST,
            assigned_broker_service_url=assigned_url(connection.services, known.topic.full_name),
        )
        connection.send(pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=told))

    async def is_alive(self) -> bool:
        if self._connection.is_open and not self._connection.is_read:
            return True  # what it says is not heard for a while, by our own choice
        return self._connection.is_open and await self._connection.signs.wait(_LIVENESS_S)

    # --- messages

    def collect(self, command: pb.Send, entry: memoryview) -> None:
        """A message came.  It is published with those beside it."""
        attached = self._by_id.get(command.producer_id)
        if attached is not self._whose or attached is None:
            self.publish()
            if not isinstance(attached, Attached):
                self._check_recently_closed(command.producer_id)
                return
            self._whose = attached
        try:
            verify(entry)
            metadata = read_metadata(entry)
            count = count_of(metadata)
        except AnabranchError as error:
            self.publish()
            self._refuse(attached, command.sequence_id, _as_pulsar_says(error))
            return
        if self._within is not None or command.HasField("txnid_least_bits"):
            try:
                within = transaction_of(command, attached.topic, self._connection.services)
            except AnabranchError as error:
                self.publish()
                self._refuse(attached, command.sequence_id, error)
                return
            if within != self._within:
                self.publish()
                self._within = within
        sequence_id = command.sequence_id
        chunks = metadata.num_chunks_from_msg
        self.collected.append(
            Send(
                sequence_id,
                max(sequence_id, command.highest_sequence_id),
                count,
                metadata.publish_time,
                entry,
                chunks > 0 and metadata.chunk_id < chunks - 1,
                chunks > 1,
                metadata.deliver_at_time,
                bool(metadata.encryption_keys),
            )
        )

    def publish(self) -> None:
        """Store what was collected and answer for it."""
        sends = self.collected
        if not sends:
            return
        self.collected = []
        attached = self._whose
        assert attached is not None
        producer, traffic = attached.producer, self._connection.services.traffic
        traffic.messages_in -= producer.messages_in
        traffic.bytes_in -= producer.bytes_in
        try:
            self._publish(attached, sends)
        finally:
            traffic.messages_in += producer.messages_in
            traffic.bytes_in += producer.bytes_in

    def _publish(self, attached: Attached, sends: list[Send]) -> None:
        while sends:
            published = _publish(attached, sends, self._within)
            if published.pause_s > 0:
                self._connection.pause(published.pause_s)
            done = len(published.offsets)
            if done:
                self._acknowledge(attached, sends[:done], published)
            if published.refused is None:
                return
            self._refuse(attached, sends[done].sequence_id, published.refused)
            sends = sends[done + 1 :]

    def _check_recently_closed(self, id: int) -> None:
        until = self._closed.get(id)
        if until is None or until < self._connection.services.clock.monotonic():
            raise Corrupt(f"a message for producer {id}, which is not open")

    # --- receipts

    def _acknowledge(self, attached: Attached, sends: list[Send], published: Published) -> None:
        ledger = published.ledger
        head = attached.head
        receipts = b"".join(
            [
                send_receipt(
                    head,
                    send.sequence_id,
                    ledger if offset != DUPLICATE else DUPLICATE,
                    offset,
                    NO_HIGHEST_SEQUENCE
                    if send.highest_sequence_id == send.sequence_id
                    else b"\x20" + varint(send.highest_sequence_id),
                )
                for send, offset in zip(sends, published.offsets, strict=True)
            ]
        )
        acknowledged = published.acknowledged
        if acknowledged is None and not attached.waiting:
            self._connection.write((receipts,))
        else:
            self._wait(attached, _Due(receipts, sends, acknowledged))

    def _refuse(self, attached: Attached, sequence_id: int, error: BaseException) -> None:
        frame = _refusal(attached.id, sequence_id, error)
        if attached.waiting:
            self._wait(attached, _Due(frame, [], None))
        else:
            self._connection.write((frame,))

    def _wait(self, attached: Attached, due: _Due) -> None:
        attached.waiting.append(due)
        self.pending_sends += len(due.sends)
        if due.acknowledged is not None:
            due.acknowledged.add_done_callback(lambda _: self._release(attached))

    def _release(self, attached: Attached) -> None:
        """Send what is known and next in order."""
        waiting = attached.waiting
        frames: list[bytes] = []
        while waiting and (waiting[0].acknowledged is None or waiting[0].acknowledged.done()):
            due = waiting.popleft()
            self.pending_sends -= len(due.sends)
            frames.append(_outcome(attached.id, due))
        if frames:
            self._connection.write((b"".join(frames),))
        if not waiting and attached.drained is not None and not attached.drained.done():
            attached.drained.set_result(None)
        self._connection.maybe_go()


def _publish(attached: Attached, sends: list[Send], within: TxnProducer | None) -> Published:
    if within is None:
        return attached.topic.publish(attached.producer, sends)
    assert isinstance(attached.topic, Topic)  # others are in no transaction
    return attached.topic.publish(attached.producer, sends, within)


def _outcome(id: int, due: _Due) -> bytes:
    acknowledged = due.acknowledged
    if acknowledged is None:
        return due.frames
    error = asyncio.CancelledError() if acknowledged.cancelled() else acknowledged.exception()
    if error is None:
        return due.frames
    return b"".join(_refusal(id, send.sequence_id, error) for send in due.sends)


def _refusal(id: int, sequence_id: int, error: BaseException) -> bytes:
    told = pb.SendError(
        producer_id=id, sequence_id=sequence_id, error=code_of(error), message=message_of(error)
    )
    return write_frame(pb.BaseCommand(type=pb.BaseCommand.SEND_ERROR, send_error=told))


def _as_pulsar_says(error: AnabranchError) -> AnabranchError:
    """Metadata that cannot be read breaks the protocol; a wrong checksum is the sender's to repeat."""
    if isinstance(error, Corrupt) and not isinstance(error, ChecksumMismatch):
        raise error
    return error
