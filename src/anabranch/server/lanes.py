"""Lanes: what a producer's requests to one partition have in common, worked out once.

Requests of a producer that carry one batch differ only in that batch.  Everything before it is the
same bytes each time, and so is everything around the offset in the answer:

    request   │ transactional id, acks, timeout, topic, partition │ length │ batch │ tags │
              └──────────────── key of the lane ──────────────────┘
    answer    │ topic, partition │ code, offset, time, log start  │ errors, throttle, tags │
              └───── head ───────┘                                └──────── tail ──────────┘

A request that finds its lane is not parsed, looks nothing up and packs one struct.  One that does not
takes the ordinary way, and leaves a lane if it succeeded.
"""

import struct
from typing import NamedTuple

from anabranch.partition.partition import Partition
from anabranch.wire.kafka.produce import Produced, ProduceRequest, write_produced

LEAST_VERSION = 8  # older ones have other answers, and no client that needs speed
FLEXIBLE_VERSION = 9
_TOPIC_ID_VERSION = 13
_MAX_LANES = 256  # of about half a kilobyte each
_MAX_COMPACT_NAME = 0x7E  # a length of one byte

PLACED = struct.Struct(">hqqq")


class Lane(NamedTuple):
    partition: Partition
    name: bytes
    acks: int
    timeout_ms: int
    head: bytes
    tail: bytes


class Lanes:
    """The lanes of one connection."""

    __slots__ = ("_lanes", "_version")

    def __init__(self) -> None:
        self._lanes: dict[bytes, Lane] = {}
        self._version = -1

    def forget(self) -> None:
        self._lanes.clear()

    def find(self, frame: memoryview, at: int, version: int) -> tuple[Lane, int] | None:
        """The lane of a request whose body starts at `at`, and where its batch's length stands."""
        if version != self._version:
            return None
        if FLEXIBLE_VERSION <= version < _TOPIC_ID_VERSION and len(frame) >= at + 14:
            end = at + 1 + 2 + 4 + 1 + frame[at + 8] + 1 + 4  # as `_key_end` has it, without the call
        else:
            end = _key_end(frame, at, version)
        lane = self._lanes.get(frame[at:end].tobytes())
        return None if lane is None or lane[0].retired else (lane, end)

    def learn(
        self, frame: memoryview, at: int, version: int, request: ProduceRequest, partition: Partition
    ) -> None:
        """A request with one batch for `partition` went well: let the next one take the short way."""
        name = request.topics[0].name
        if version < LEAST_VERSION or len(name) > _MAX_COMPACT_NAME or not request.acks:
            return
        if version != self._version or len(self._lanes) >= _MAX_LANES:
            self._lanes.clear()
            self._version = version
        answer = write_produced(version, [(name, [Produced(partition.index, 0, 0, 0, 0)])])
        if version >= _TOPIC_ID_VERSION:
            split = 1 + 1 + 16 + 1 + 4
        elif version >= FLEXIBLE_VERSION:
            split = 1 + 1 + 1 + len(name) + 1 + 4
        else:
            split = 4 + 2 + len(name) + 4 + 4
        lane = Lane(
            partition, name, request.acks, request.timeout_ms, answer[:split], answer[split + PLACED.size :]
        )
        self._lanes[frame[at : _key_end(frame, at, version)].tobytes()] = lane


def _key_end(frame: memoryview, at: int, version: int) -> int:
    """Where the batch's length stands, if the request is of the kind that has a lane."""
    if version >= _TOPIC_ID_VERSION:
        return at + 1 + 2 + 4 + 1 + 16 + 1 + 4
    if len(frame) < at + 14:
        return at
    if version >= FLEXIBLE_VERSION:
        return at + 1 + 2 + 4 + 1 + frame[at + 8] + 1 + 4
    return at + 2 + 2 + 4 + 4 + 2 + frame[at + 13] + 4 + 4
