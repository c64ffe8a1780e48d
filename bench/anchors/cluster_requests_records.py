"""Requests of cluster_differential.py: metadata, and what is read from and written to partitions."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cluster_sides import GROUP, WRITE_TXN_MARKERS, Ask, Side, Values, always, broker, each, led
from clusters import BROKERS

from tests.compat.clients import raw


def metadata(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    yield from metadata_of("all there")


def metadata_of(when: str, names: Sequence[str] = ("led", "moved")) -> Iterator[Ask]:
    def mine(answer: Any) -> Any:
        if isinstance(answer, dict):
            answer["topics"] = [one for one in answer["topics"] if one["name"] in names]
        return answer

    def by_name(wanted: Sequence[str]) -> Callable[[Side], Values]:
        return lambda side: {
            "topics": [{"name": side.topic(name)} for name in wanted],
            "allow_auto_topic_creation": False,
        }

    def by_id(wanted: Sequence[str]) -> Callable[[Side], Values]:
        return lambda side: {"topics": [{"topic_id": side.ids[name], "name": None} for name in wanted]}

    yield from each(
        f"metadata of all, {when}", raw.METADATA, always({"topics": None}), shown=mine, versions=range(1, 14)
    )
    yield from each(f"metadata of two, {when}", raw.METADATA, by_name(names))
    yield from each(
        f"metadata of an unknown one, {when}", raw.METADATA, by_name(["none", *names]), versions=range(4, 14)
    )
    yield from each(f"metadata by id, {when}", raw.METADATA, by_id([*names, "none"]), versions=range(12, 14))
    yield from each(f"metadata by id in v10, {when}", raw.METADATA, by_id(names), versions=range(10, 12))
    listed = {"response_partition_limit": 100, "cursor": None}
    yield from each(
        f"describe topic partitions, {when}",
        raw.DESCRIBE_TOPIC_PARTITIONS,
        lambda side: listed | {"topics": [{"name": side.topic(name)} for name in [*names, "none"]]},
    )


def produce(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    data = raw.batch([b"x"])
    for acks in (-1, 1):
        for name, partition in (("led", 0), ("led", 1), ("led", 2), ("led", 9), ("none", 0)):
            yield from each(
                f"produce to {name}-{partition}, acks {acks}",
                raw.PRODUCE,
                produced(name, partition, data, acks),
            )
    yield from each("produce with acks 2", raw.PRODUCE, produced("led", 0, data, 2))
    for side in sides:
        side.create("insync", [[1, 2]], {"min.insync.replicas": "3"})
        side.create("insync1", [[1, 2, 3]], {"min.insync.replicas": "3"})
    yield from each(
        "produce with min.insync.replicas above the factor", raw.PRODUCE, produced("insync", 0, data, -1)
    )


def produced(name: str, partition: int, data: bytes, acks: int) -> Callable[[Side], Values]:
    def values(side: Side) -> Values:
        part = {"index": partition, "records": data}
        topic = {"name": side.topic(name), "topic_id": side.ids[name], "partition_data": [part]}
        return {"acks": acks, "timeout": 10_000, "topic_data": [topic]}

    return values


def fetch(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    time.sleep(1.0)
    for name, partition in (("led", 0), ("led", 1), ("led", 2), ("led", 9), ("moved", 0), ("none", 0)):
        for epoch in (-1, 0, 1, 2):
            for offset in (0, 4) if epoch < 1 else (0,):
                label = f"fetch {name}-{partition} at {offset}, epoch {epoch}"
                yield from each(label, raw.FETCH, fetched(name, partition, offset, epoch))
    for offset in (10_000, -1):
        yield from each(f"fetch led-0 at {offset}", raw.FETCH, fetched("led", 0, offset, -1))
    yield from each("fetch committed", raw.FETCH, fetched("led", 0, 0, -1, isolation_level=1))
    yield from each(
        "fetch from a rack", raw.FETCH, fetched("led", 0, 0, -1, rack_id="a"), versions=range(11, 19)
    )
    yield from each(
        "fetch as a debugger", raw.FETCH, fetched("led", 0, 0, -1, replica_id=-2), versions=range(4, 15)
    )
    yield from each(
        "fetch of a diverging epoch", raw.FETCH, fetched("moved", 0, 5, -1, last=0), versions=range(12, 19)
    )
    yield from each(
        "fetch of an unknown session",
        raw.FETCH,
        fetched("led", 0, 0, -1, session_id=4711, session_epoch=5),
        versions=range(7, 19),
    )
    yield from each(
        "a session begins", raw.FETCH, fetched("led", 0, 0, -1, session_epoch=0), versions=range(7, 19)
    )
    yield from each(
        "wait at the end", raw.FETCH, fetched("led", 1, 10_000, -1, max_wait=50), versions=range(10, 19)
    )


def fetched(
    name: str, partition: int, offset: int, epoch: int, last: int = -1, **options: Any
) -> Callable[[Side], Values]:
    def values(side: Side) -> Values:
        part = {
            "partition": partition,
            "fetch_offset": offset,
            "current_leader_epoch": epoch,
            "last_fetched_epoch": last,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        topic = {"topic": side.topic(name), "topic_id": side.ids[name], "partitions": [part]}
        asked = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        return asked | {"topics": [topic]} | options

    return values


def replica_fetches(sides: list[Side]) -> Iterator[Ask]:
    """As brokers send them: by one that there is not, and by one without a replica."""
    led(sides)
    for replica in (9, 3):
        for epoch, broker_epoch in itertools.product((-1, 0, 1), (-1, 5)):
            who = {
                "replica_id": replica,
                "replica_state": {"replica_id": replica, "replica_epoch": broker_epoch},
            }
            values = fetched("led", 0, 0, epoch, **who)
            yield from each(f"fetch by replica {replica}, epochs {epoch}, {broker_epoch}", raw.FETCH, values)
        values = listed_at("led", 0, -1, -1, replica, 0)
        yield from each(f"offset for replica {replica}", raw.LIST_OFFSETS, values)


def transactional_produce(sides: list[Side]) -> Iterator[Ask]:
    """By producers that the coordinator, on this broker or another, does not know."""
    led(sides)
    for name, partition in (("led", 0), ("led", 1), ("led", 2)):
        for id, number in (("transactional", 999_999), ("unheard-of", 999_999)):
            data = raw.batch([b"x"], producer=(number, 0, 0), attributes=0x10)

            def values(
                side: Side, data: bytes = data, id: str = id, place: Any = (name, partition)
            ) -> Values:
                return produced(*place, data, -1)(side) | {"transactional_id": side.topic(id)}

            yield from each(f"produce to {name}-{partition} in a transaction of {id}", raw.PRODUCE, values)


def fetch_sessions(sides: list[Side]) -> Iterator[Ask]:
    """A session with partitions that are led here, and with some that are not."""
    led(sides)
    places = (("led", 0), ("led", 1), ("led", 2), ("led", 9), ("none", 0))
    for id, version in itertools.product(BROKERS, (7, 12, 13, 18)):
        for number, named in enumerate((places, (), (), places[1:3], (), ())):

            def values(side: Side, number: int = number, named: Any = named, id: int = id) -> Values:
                session = side.session if number else 0
                topics = [fetched(*place, 0, -1)(side)["topics"][0] for place in named]
                forgotten = [{"topic": side.topic("led"), "topic_id": side.ids["led"], "partitions": [1]}]
                return fetched("led", 0, 0, -1)(side) | {
                    "session_id": session,
                    "session_epoch": number,
                    "topics": topics,
                    "forgotten_topics_data": forgotten if number == 4 else [],
                }

            label = f"request {number} of a session of {len(named)} partitions, broker {id}"
            yield Ask(label, raw.FETCH, values, broker(id), [version])


def list_offsets(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for name, partition in (("led", 0), ("led", 1), ("moved", 0), ("led", 9), ("none", 0)):
        for replica, isolation in ((-1, 0), (-1, 1), (-2, 0)):
            for at in (-1, -2, -3, -4, -5, -6, -7, 0, raw.BASE_MS, 1 << 60):
                for epoch in (-1, 0, 1, 2) if at in (-1, 0) else (-1,):
                    label = (
                        f"offset of {name}-{partition} at {at}, epoch {epoch}, replica {replica}/{isolation}"
                    )
                    yield from each(
                        label, raw.LIST_OFFSETS, listed_at(name, partition, at, epoch, replica, isolation)
                    )


def listed_at(
    name: str, partition: int, at: int, epoch: int, replica: int, isolation: int
) -> Callable[[Side], Values]:
    part = {"partition_index": partition, "timestamp": at, "current_leader_epoch": epoch}
    options = {"replica_id": replica, "isolation_level": isolation, "timeout": 5000}
    return lambda side: options | {"topics": [{"name": side.topic(name), "partitions": [part]}]}


def epochs(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for name, partition in (("led", 0), ("moved", 0), ("led", 9), ("none", 0)):
        for current, epoch in itertools.product((-1, 0, 1, 2), (-1, 0, 1, 2, 9)):
            part = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
            yield from each(
                f"end of epoch {epoch} of {name}-{partition}, current {current}",
                raw.OFFSET_FOR_LEADER_EPOCH,
                lambda side, name=name, part=part: {
                    "replica_id": -1,
                    "topics": [{"topic": side.topic(name), "partitions": [part]}],
                },
            )


def delete_records(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for side in sides:
        side.coordinator("any", GROUP)  # makes the topic
    for name, partition, offset in (
        ("led", 0, 0),
        ("led", 1, -1),
        ("led", 2, 99_999),
        ("led", 9, 0),
        ("none", 0, 0),
    ):
        part = {"partition_index": partition, "offset": offset}
        yield from each(
            f"delete records of {name}-{partition} before {offset}",
            raw.DELETE_RECORDS,
            lambda side, name=name, part=part: {
                "timeout": 10_000,
                "topics": [{"name": side.topic(name), "partitions": [part]}],
            },
        )
    internal = {
        "timeout": 1000,
        "topics": [{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}],
    }
    yield from each("delete records of an internal topic", raw.DELETE_RECORDS, always(internal), versions=[2])


def producers(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    for side in sides:
        side.produce(
            1,
            "led",
            raw.batch([b"numbered"], producer=(raw.new_producer(raw.Connection(side.addresses[1])), 0, 0)),
        )
    time.sleep(1)
    for name, index in (("led", 0), ("led", 1), ("led", 9), ("none", 0)):
        yield from each(
            f"producers of {name}-{index}",
            raw.DESCRIBE_PRODUCERS,
            lambda side, name=name, index=index: {
                "topics": [{"name": side.topic(name), "partition_indexes": [index]}]
            },
        )
    for name, index in (("led", 0), ("led", 1), ("led", 9), ("none", 0)):
        yield from each(
            f"a marker of nobody's transaction to {name}-{index}",
            WRITE_TXN_MARKERS,
            lambda side, name=name, index=index: {
                "markers": [
                    {
                        "producer_id": 123_456_789,
                        "producer_epoch": 0,
                        "transaction_result": False,
                        "topics": [{"name": side.topic(name), "partition_indexes": [index]}],
                        "coordinator_epoch": 0,
                        "transaction_version": 0,
                    }
                ]
            },
        )
