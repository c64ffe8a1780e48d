"""Frames of Pulsar's protocol: a command, and for messages what follows it.

    ┌ u32 size of the rest
    │      ┌ u32 size of the command
    │      │      ┌ BaseCommand
    │      │      │          ┌ SEND and MESSAGE only: an entry (records/entries.py)
    total  size   command    0x0e01 | crc32c | u32 size | MessageMetadata | payload

Everything here works on bytes that are there; who reads sockets cuts them by `total` and knows the limit.
An entry stays a view of the frame it came in.
"""

import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from anabranch.base.errors import Corrupt
from anabranch.wire.pulsar.commands_pb2 import BaseCommand

SIZE = struct.Struct(">I")
_SIZES = struct.Struct(">II")

# What a frame may have beyond a message of the largest size: the command and the message's metadata.
# Pulsar's own figure.
FRAME_OVERHEAD_BYTES = 10 * 1024


class Frame(NamedTuple):
    command: BaseCommand
    entry: memoryview | None
    """What follows the command, None if nothing does."""


def read_frame(frame: memoryview) -> Frame:
    """The frame after its total size.  Corrupt if it is not one."""
    if len(frame) < SIZE.size:
        raise Corrupt(f"a frame of {len(frame)} bytes has no command")
    (size,) = SIZE.unpack_from(frame)
    end = SIZE.size + size
    if end > len(frame):
        raise Corrupt(f"a command claims {size} bytes, {len(frame) - SIZE.size} are there")
    command = BaseCommand()
    try:
        command.ParseFromString(frame[SIZE.size : end])  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise Corrupt(f"a command cannot be read: {error}") from error
    if not command.IsInitialized():
        raise Corrupt("a command is of an unknown kind, or lacks a field that it must have")
    return Frame(command, frame[end:] if end < len(frame) else None)


def write_frame(command: BaseCommand) -> bytes:
    """A command without an entry, as it goes out."""
    data = command.SerializeToString()
    return _SIZES.pack(len(data) + SIZE.size, len(data)) + data


def write_frame_with(command: BaseCommand, entry: bytes | memoryview) -> bytes:
    """A command with an entry after it, in one piece."""
    data = command.SerializeToString()
    return b"".join((_SIZES.pack(len(data) + SIZE.size + len(entry), len(data)), data, entry))
