"""Log ends: how far each replica of a topic has come, as the brokers that have them say.

    LW    the leader's log start        ListOffsets, earliest
    HW    what consumers may read       ListOffsets, latest
    LEO   the end of a replica's log    ListOffsets, latest, as one who looks into replicas (-2): followers
                                        answer, too

All brokers are asked at once, each for all that it has, and nobody is waited for longer than `BOUND_S`: what
a broker that stands still would have said is not known.  The answers are moments apart.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from anabranch.base.errors import AnabranchError
from anabranch.client.answers import is_retried
from anabranch.client.cluster import CONSUMER, DEBUGGER, EARLIEST, LATEST, Cluster, Offsets, list_offsets
from anabranch.client.destinations import Address, TopicPartition
from anabranch.client.settings import Settings

BOUND_S = 3.0
_PAUSE_S = 0.2

T = TypeVar("T")


@dataclass(slots=True)
class LogEnds:
    """What is missing was not told."""

    starts: Offsets = field(default_factory=dict)
    high_watermarks: Offsets = field(default_factory=dict)
    ends: dict[int, Offsets] = field(default_factory=dict)
    """By broker."""

    def lag(self, partition: TopicPartition, leader: int, replica: int) -> int | None:
        """How many offsets `replica` is behind the leader's log end."""
        end, own = (self.ends.get(broker, {}).get(partition) for broker in (leader, replica))
        return None if end is None or own is None else max(0, end - own)


def lag_cells(lags: Mapping[str, int | None], unknown: str = "?") -> list[str]:
    """Of a table for people: `2:150,3:?`."""
    return [f"{broker}:{unknown if lag is None else lag}" for broker, lag in lags.items()]


def topics_and_ends(cluster: Cluster, names: list[str]) -> tuple[list[Any], LogEnds]:
    """What Metadata says of the topics, and how far their replicas are.

    Who leads may be changing: it is looked up again while a broker says that it does not serve what it was
    asked for, and there is time.
    """
    deadline = time.monotonic() + BOUND_S
    while True:
        answer = cluster.metadata(names)
        ends, is_settled = _ends(answer, max(_PAUSE_S, deadline - time.monotonic()))
        if is_settled or time.monotonic() + _PAUSE_S > deadline:
            return list(answer.topics), ends
        time.sleep(_PAUSE_S)


def _ends(metadata: Any, bound_s: float) -> tuple[LogEnds, bool]:
    """Also whether all answered for what they are said to have."""
    led: dict[int, list[TopicPartition]] = {}
    held: dict[int, list[TopicPartition]] = {}
    for topic in metadata.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            led.setdefault(one.leader_id, []).append(partition)
            for broker in one.replica_nodes:
                held.setdefault(broker, []).append(partition)
    asks = {
        one.node_id: _question(
            Address(one.host, one.port), led.get(one.node_id, []), held.get(one.node_id, []), bound_s
        )
        for one in metadata.brokers
        if one.node_id in led or one.node_id in held
    }
    found = LogEnds()
    is_settled = True
    for broker, answers in at_once(asks, bound_s).items():
        (starts, high_watermarks, found.ends[broker]), was_settled = answers
        found.starts |= starts
        found.high_watermarks |= high_watermarks
        is_settled &= was_settled
    return found, is_settled


def _question(
    broker: Address, led: list[TopicPartition], held: list[TopicPartition], bound_s: float
) -> Callable[[], tuple[list[Offsets], bool]]:
    """Log starts and high watermarks of what it leads, log ends of all it has."""
    requests = [
        list_offsets(dict.fromkeys(led, EARLIEST), CONSUMER),
        list_offsets(dict.fromkeys(led, LATEST), CONSUMER),
        list_offsets(dict.fromkeys(held, LATEST), DEBUGGER),
    ]

    def ask() -> tuple[list[Offsets], bool]:
        deadline = time.monotonic() + bound_s
        with Cluster(Settings(str(broker), "anabranch-cli", bound_s)) as client:
            started = [client.start(broker, request) for request in requests]
            answers = [one.take(max(_PAUSE_S, deadline - time.monotonic())) for one in started]
        parts = [_parts(answer.topics) for answer in answers]
        codes = {part.error_code for each in parts for part in each.values()}
        found = [
            {partition: part.offset for partition, part in each.items() if not part.error_code}
            for each in parts
        ]
        return found, not any(map(is_retried, codes - {0}))

    return ask


def _parts(topics: Iterable[Any]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic.name, part.partition_index): part
        for topic in topics
        for part in topic.partitions
    }


def at_once(asks: Mapping[int, Callable[[], T]], bound_s: float) -> dict[int, T]:
    """What each comes to, of those that do in time and do not fail."""
    answers: SimpleQueue[tuple[int, T | None]] = SimpleQueue()

    def run(key: int, ask: Callable[[], T]) -> None:
        try:
            answers.put((key, ask()))
        except AnabranchError:
            answers.put((key, None))

    for key, ask in asks.items():
        Thread(
            target=run, args=(key, ask), daemon=True
        ).start()  # one that hangs does not keep us from ending
    found: dict[int, T] = {}
    deadline = time.monotonic() + bound_s
    for _ in asks:
        try:
            key, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if answer is not None:
            found[key] = answer
    return found
