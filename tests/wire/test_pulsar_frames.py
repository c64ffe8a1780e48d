"""Pulsar frames: what was written can be read, whatever else cannot and says so."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.base.errors import Corrupt
from anabranch.wire.pulsar import hot
from anabranch.wire.pulsar.commands_pb2 import BaseCommand
from anabranch.wire.pulsar.frames import read_frame, write_frame, write_frame_with
from tests.unit.records.strategies import seeded

UINT64 = st.integers(0, (1 << 64) - 1)
OFFSET = st.integers(0, (1 << 63) - 1)


def parsed(frame: bytes) -> tuple[BaseCommand, bytes | None]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    command, entry = read_frame(memoryview(frame)[4:])
    return command, None if entry is None else bytes(entry)


def test_a_command_alone() -> None:
    command = BaseCommand(type=BaseCommand.PING)
    command.ping.SetInParent()
    assert parsed(write_frame(command)) == (command, None)


def test_a_command_with_an_entry() -> None:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = 1, 2
    assert parsed(write_frame_with(command, b"entry")) == (command, b"entry")


@seeded()
@given(UINT64)
def test_numbers_are_as_protobuf_writes_them(number: int) -> None:
    command = BaseCommand(type=BaseCommand.SUCCESS)
    command.success.request_id = number
    assert command.success.SerializeToString() == b"\x08" + hot.varint(number)


@seeded()
@given(UINT64, UINT64, st.integers(-1, (1 << 63) - 1), st.integers(-1, (1 << 63) - 1))
def test_a_receipt_packed_by_hand(producer: int, sequence: int, ledger: int, entry: int) -> None:
    frame = hot.send_receipt(hot.receipt_head(producer), sequence, ledger, entry)
    command, rest = parsed(frame)
    receipt = command.send_receipt
    assert (command.type, rest) == (BaseCommand.SEND_RECEIPT, None)
    assert (receipt.producer_id, receipt.sequence_id) == (producer, sequence)
    mask = (1 << 64) - 1
    assert (receipt.message_id.ledger_id, receipt.message_id.entry_id) == (ledger & mask, entry & mask)
    assert receipt.highest_sequence_id == mask


@seeded()
@given(UINT64, st.integers(-1, 100_000), OFFSET, OFFSET, st.integers(0, 1000), st.binary(max_size=20))
def test_a_message_packed_by_hand(
    consumer: int, partition: int, ledger: int, entry: int, redeliveries: int, payload: bytes
) -> None:
    head = hot.message_head(consumer, partition)
    frame = hot.message(head, ledger, entry, redeliveries, len(payload)) + payload
    command, rest = parsed(frame)
    told = command.message
    assert (command.type, rest or b"") == (BaseCommand.MESSAGE, payload)
    assert (told.consumer_id, told.redelivery_count) == (consumer, redeliveries)
    id = told.message_id
    assert (id.ledger_id, id.entry_id, id.partition) == (ledger, entry, partition)


def test_a_message_that_is_partly_acknowledged() -> None:
    command, rest = parsed(hot.partly_acked_message(3, -1, (0, 9), 1, [5, -1], 4) + b"abcd")
    assert list(command.message.ack_set) == [5, -1]
    assert (command.message.message_id.entry_id, rest) == (9, b"abcd")


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\0\0\0\2\x08\x02\0"])
def test_what_is_no_frame(frame: bytes) -> None:
    if frame == b"\0\0\0\2\x08\x02\0":
        assert read_frame(memoryview(frame)).entry == b"\0"
        return
    with pytest.raises(Corrupt):
        read_frame(memoryview(frame))


def test_garbage_is_a_frame_or_corrupt() -> None:
    chance = random.Random(11)
    for _ in range(2000):
        data = chance.randbytes(chance.randrange(64))
        frame = len(data).to_bytes(4, "big") + data
        try:
            read_frame(memoryview(frame))
        except Corrupt:
            continue
