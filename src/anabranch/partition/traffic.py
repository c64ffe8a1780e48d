"""Traffic: what went in and out of the partitions of a broker since it started.

    leader of orders-0   messages, bytes in and out      ─┐
    leader of orders-1                                    ├─> a sum, made when somebody asks
    leaders and followers that are no more, all together ─┘

Each leader and each follower counts for itself (`Partition`, `Following`).  When one ends, what it counted is
added to what is `past`, so that sums never fall.
"""

from anabranch.base.errors import (
    Corrupt,
    FencedLeaderEpoch,
    NotOwner,
    OffsetOutOfRange,
    TooLarge,
    UnknownLeaderEpoch,
    UnknownTopic,
    UnknownTopicId,
)

_ELSEWHERE = (NotOwner, UnknownTopic, UnknownTopicId)
_CLIENTS_FAULT = (*_ELSEWHERE, TooLarge, Corrupt)
_READERS_LAG = (*_ELSEWHERE, OffsetOutOfRange, FencedLeaderEpoch, UnknownLeaderEpoch)


class Counts:
    """Of one partition, or of many."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "replication_bytes_in", "replication_bytes_out")

    def __init__(
        self,
        messages_in: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
        replication_bytes_in: int = 0,
        replication_bytes_out: int = 0,
    ) -> None:
        self.messages_in = messages_in
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.replication_bytes_in = replication_bytes_in
        self.replication_bytes_out = replication_bytes_out

    def add(self, other: "Counts") -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out

    def subtract(self, other: "Counts") -> None:
        self.messages_in -= other.messages_in
        self.bytes_in -= other.bytes_in
        self.bytes_out -= other.bytes_out
        self.replication_bytes_in -= other.replication_bytes_in
        self.replication_bytes_out -= other.replication_bytes_out


class Traffic:
    """Of all partitions that a broker has or had."""

    def __init__(self) -> None:
        self.past = Counts()
        self.failed_produces = 0
        """Batches that were refused, for none of the reasons that clients deal with by themselves."""
        self.failed_fetches = 0
        """Partitions that could not be read, likewise."""

    def produce_failed(self, error: BaseException) -> None:
        self.failed_produces += not isinstance(error, _CLIENTS_FAULT)

    def fetch_failed(self, error: BaseException) -> None:
        self.failed_fetches += not isinstance(error, _READERS_LAG)
