"""SEND_RECEIPT and MESSAGE, the two commands that go out most often, packed by hand.

    SEND_RECEIPT   08 07 | 3a n | 08 producer | 10 sequence | 1a n | 08 ledger | 10 entry | 20 highest
    MESSAGE        08 09 | 4a n | 08 consumer | 12 n | 08 ledger | 10 entry | 18 partition | 18 redeliveries

Every length fits one byte except for a MESSAGE with an `ack_set`, which is rare and packed the ordinary way;
so is one to a consumer that counts epochs, which Java's do.
"""

import struct
from collections.abc import Sequence

from anabranch.wire.pulsar.commands_pb2 import BaseCommand

_SIZES = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_MASK = (1 << 64) - 1

NO_HIGHEST_SEQUENCE = b"\x20" + b"\xff" * 9 + b"\x01"  # -1, as Pulsar says when the client gave none

_ONE = [bytes((number,)) for number in range(128)]


def varint(number: int) -> bytes:
    """`number`, which is not negative, as protobuf writes it."""
    if number < 0x80:
        return _ONE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x20_0000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    if number < 0x1000_0000:
        return bytes(
            (number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80, number >> 21)
        )
    return bytes(
        (
            number & 0x7F | 0x80,
            number >> 7 & 0x7F | 0x80,
            number >> 14 & 0x7F | 0x80,
            number >> 21 & 0x7F | 0x80,
        )
    ) + varint(number >> 28)


def receipt_head(producer_id: int) -> bytes:
    """What all receipts of a producer have in common, for `send_receipt`."""
    return b"\x08" + varint(producer_id) + b"\x10"


def send_receipt(
    head: bytes, sequence_id: int, ledger: int, entry: int, highest: bytes = NO_HIGHEST_SEQUENCE
) -> bytes:
    """A SEND_RECEIPT frame.  `ledger` and `entry` of -1 are what a duplicate gets."""
    place = b"\x08" + varint(ledger & _MASK) + b"\x10" + varint(entry & _MASK)
    body = head + varint(sequence_id) + b"\x1a" + _ONE[len(place)] + place + highest
    size = len(body) + 4
    return _SIZES.pack(size + 4, size) + b"\x08\x07\x3a" + _ONE[size - 4] + body


def message_head(consumer_id: int, partition: int) -> tuple[bytes, bytes]:
    """What all messages to a consumer have in common, for `message`: before and after the place."""
    tail = b"\x18" + varint(partition & _MASK)
    return b"\x08" + varint(consumer_id) + b"\x12", tail


def message(
    head: tuple[bytes, bytes], ledger: int, entry: int, redeliveries: int, payload_bytes: int
) -> bytes:
    """The head of a MESSAGE frame; `payload_bytes` of entry follow it."""
    place = b"\x08" + varint(ledger) + b"\x10" + varint(entry) + head[1]
    body = head[0] + _ONE[len(place)] + place
    if redeliveries:
        body += b"\x18" + varint(redeliveries)
    size = len(body) + 4
    return _SIZES.pack(size + 4 + payload_bytes, size) + b"\x08\x09\x4a" + _ONE[size - 4] + body


def partly_acked_message(
    consumer_id: int,
    partition: int,
    place: tuple[int, int],
    redeliveries: int,
    ack_set: Sequence[int],
    payload_bytes: int,
    epoch: int = -1,
) -> bytes:
    """As `message`, of an entry some of whose messages are acknowledged; `place` is ledger and entry.

    `epoch` is the consumer's, if it counts any.
    """
    command = BaseCommand(type=BaseCommand.MESSAGE)
    told = command.message
    told.consumer_id = consumer_id
    told.message_id.ledger_id, told.message_id.entry_id = place
    told.message_id.partition = partition
    if redeliveries:
        told.redelivery_count = redeliveries
    told.ack_set.extend(ack_set)
    if epoch >= 0:
        told.consumer_epoch = epoch
    data = command.SerializeToString()
    return _SIZES.pack(len(data) + 4 + payload_bytes, len(data)) + data
