"""Fetches of `anabranch consume`: partitions of a topic, from where each stands, in the order they come.

One request per leader has all partitions that it leads.  A partition that has come to its end, if it is to
come to one, is left out of the next.  A fetch that fails is tried again, after a look who leads now; what was
shown is not shown again, since positions move with each batch.
"""

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.base.disk import Buffer
from anabranch.base.errors import OffsetOutOfRange, Unavailable
from anabranch.cli.client_options import ConsumeSettings
from anabranch.cli.render import Shown
from anabranch.client.answers import check
from anabranch.client.cluster import EARLIEST, LATEST, Cluster, Offsets
from anabranch.client.destinations import Address, Leader, TopicPartition
from anabranch.client.requests import FETCH, Request
from anabranch.client.visible import Aborted, Stored, visible_batches, whole_batches
from anabranch.records.batch import LOG_APPEND_TIME
from anabranch.records.compression import decompress
from anabranch.records.record import iter_records

_NO_END = 1 << 63
_LARGEST_BATCH_BYTES = 1 << 30  # unpacked; what is larger no client could have made


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        how: ConsumeSettings,
        committed: bool,
        positions: Offsets,
        ends: Offsets | None,
    ) -> None:
        self._cluster = cluster
        self._how = how
        self._committed = committed
        self._positions = dict(positions)
        self._ends = ends

    def batches(self, stop: Callable[[], bool]) -> Iterator[list[Shown]]:
        """Records as they come, until every partition was read to its end, or `stop` says so."""
        pace = self._cluster.pace()
        while not stop() and (wanted := self._wanted()):
            before = sum(self._positions.values())
            try:
                for leader in dict.fromkeys(self._cluster.locate(Leader(place)) for place in wanted):
                    yield from self._fetched(leader, wanted, stop)
                if self._ends is not None and sum(self._positions.values()) == before and not stop():
                    raise Unavailable(f"{wanted[0]} gives nothing from {self._positions[wanted[0]]} on")
                pace.progressed()
            except Unavailable as error:
                self._cluster.pause(pace, error)

    def _wanted(self) -> list[TopicPartition]:
        ends = self._ends
        if ends is None:
            return list(self._positions)
        return [place for place, position in self._positions.items() if position < ends[place]]

    def _fetched(
        self, leader: Address, wanted: list[TopicPartition], stop: Callable[[], bool]
    ) -> Iterator[list[Shown]]:
        theirs = [place for place in wanted if self._cluster.locate(Leader(place)) == leader]
        answer = self._cluster.start(leader, self._request(theirs)).take(self._how.timeout_ms / 1000)
        check(answer.error_code, "fetching")
        for topic in answer.responses:
            for one in topic.partitions:
                place = TopicPartition(topic.topic, one.partition_index)
                try:
                    check(one.error_code, f"fetching {place}")
                except OffsetOutOfRange:
                    self._positions[place] = self._nearest(place)
                    continue
                for records in self._read(place, one):
                    if stop():
                        return
                    yield records

    def _request(self, places: list[TopicPartition]) -> Request:
        topics: dict[str, list[dict[str, int]]] = {}
        for place in places:
            topics.setdefault(place.topic, []).append(
                {
                    "partition": place.partition,
                    "current_leader_epoch": -1,
                    "fetch_offset": self._positions[place],
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": self._how.fetch_bytes,
                }
            )
        values = {
            "replica_id": -1,
            "max_wait": self._how.wait_ms,
            "min_bytes": 1,
            "max_bytes": self._how.fetch_bytes,
            "isolation_level": int(self._committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": parts} for topic, parts in topics.items()],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return Request(FETCH, values)

    def _nearest(self, place: TopicPartition) -> int:
        """The offset next to one that the partition has not: its beginning, or its end."""
        start = self._cluster.offsets_at({place: EARLIEST})[place]
        if self._positions[place] < start:
            return start
        return self._cluster.offsets_at({place: LATEST}, committed=self._committed)[place]

    def _read(self, place: TopicPartition, answer: Any) -> Iterator[list[Shown]]:
        """The records of a partition that are to be shown; its position is behind them then."""
        buffer = answer.records or b""
        stored = list(whole_batches(buffer))
        aborted = [Aborted(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        end = _NO_END if self._ends is None else self._ends[place]
        for batch in visible_batches(buffer, stored, aborted if self._committed else ()):
            records = _shown(place, buffer, batch, range(self._positions[place], end))
            self._positions[place] = max(self._positions[place], min(batch.header.last_offset + 1, end))
            if records:
                yield records
        if stored:
            behind = stored[-1].header.last_offset + 1
            self._positions[place] = max(self._positions[place], behind)


def _shown(place: TopicPartition, buffer: Buffer, batch: Stored, wanted: range) -> list[Shown]:
    """Those records of a batch whose offsets are `wanted`."""
    header = batch.header
    payload = decompress(header.codec, memoryview(buffer)[batch.start : batch.end], _LARGEST_BATCH_BYTES)
    topic, partition = place
    appended = bool(header.attributes & LOG_APPEND_TIME)
    return [
        Shown(
            topic,
            partition,
            offset,
            None if timestamp < 0 else timestamp,
            appended,
            key,
            value,
            [(name.decode(errors="replace"), content) for name, content in headers] if headers else (),
        )
        for offset, timestamp, key, value, headers in iter_records(header, payload)
        if offset in wanted
    ]
