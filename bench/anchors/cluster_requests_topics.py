"""Requests of cluster_differential.py: topics made and grown, reassignments, elections."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from cluster_requests_records import metadata_of
from cluster_sides import (
    ELECT_LEADERS,
    LIST_REASSIGNMENTS,
    NOBODY,
    REASSIGN,
    THROTTLED,
    Ask,
    Side,
    Values,
    always,
    broker,
    each,
    led,
)
from clusters import BROKERS

from tests.compat.clients import raw


def create_topics(sides: list[Side]) -> Iterator[Ask]:
    yield from creations("all there")


def creations(when: str) -> Iterator[Ask]:
    def placed(*replicas: list[int], first: int = 0) -> Values:
        chosen = [{"partition_index": first + i, "broker_ids": ids} for i, ids in enumerate(replicas)]
        return {"num_partitions": -1, "replication_factor": -1, "assignments": chosen}

    wrong = {
        "the same broker twice": placed([1, 1]),
        "an unknown broker": placed([1, 9]),
        "a negative broker": placed([-1]),
        "no brokers": placed([]),
        "a hole": {
            **placed([1]),
            "assignments": [
                {"partition_index": 0, "broker_ids": [1]},
                {"partition_index": 2, "broker_ids": [1]},
            ],
        },
        "not from 0": placed([1], first=1),
        "a partition twice": {
            **placed([1]),
            "assignments": [
                {"partition_index": 0, "broker_ids": [1]},
                {"partition_index": 0, "broker_ids": [2]},
            ],
        },
        "factors that differ": placed([1, 2], [1]),
        "both": {**placed([1, 2]), "num_partitions": 1},
        "both, factor": {**placed([1, 2]), "replication_factor": 2},
        "broker 3": placed([3]),
        "brokers 1 and 3": placed([1, 3], [3, 2]),
        "negative partition": placed([1], first=-1),
        "factor 0": {"num_partitions": 1, "replication_factor": 0},
        "factor 2": {"num_partitions": 1, "replication_factor": 2},
        "factor 3": {"num_partitions": 4, "replication_factor": 3},
        "factor 4": {"num_partitions": 1, "replication_factor": 4},
        "factor -2": {"num_partitions": 1, "replication_factor": -2},
        "no partitions": {"num_partitions": 0, "replication_factor": 1},
        "-2 partitions": {"num_partitions": -2, "replication_factor": 1},
        "both wrong": {"num_partitions": 0, "replication_factor": 0},
        "defaults": {"num_partitions": -1, "replication_factor": -1},
        "a bad option": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "no.such", "value": "1"}],
        },
        "a null option": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "retention.ms", "value": None}],
        },
        "throttles": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "leader.replication.throttled.replicas", "value": "0:x"}],
        },
        "more in sync than replicas": {
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "min.insync.replicas", "value": "5"}],
        },
    }

    def shown(answer: Any) -> Any:
        for topic in answer["topics"]:
            topic.pop("configs", None)
            topic.pop("topic_config_error_code", None)
        return answer

    for label, topic in wrong.items():
        for id in BROKERS:
            for only_check in (True, False):
                name = f"{'v' if only_check else 'made'}-{label}-{when}-{id}".replace(" ", "-").replace(
                    ",", ""
                )
                yield Ask(
                    f"create with {label}{', only check' if only_check else ''}, {when}, broker {id}",
                    raw.CREATE_TOPICS,
                    lambda side, name=name, topic=topic, only_check=only_check: {
                        "topics": [{"name": side.topic(name)} | topic],
                        "timeout": 10_000,
                        "validate_only": only_check,
                    },
                    broker(id),
                    range(2, 8) if only_check else [7],
                    shown,
                )
    yield from each(
        "create one that is there, " + when,
        raw.CREATE_TOPICS,
        lambda side: {
            "topics": [
                {
                    "name": side.topic(f"made-defaults-{when}-1".replace(" ", "-")),
                    "num_partitions": 1,
                    "replication_factor": 1,
                }
            ],
            "timeout": 5000,
        },
        shown=shown,
    )


def delete_topics(sides: list[Side]) -> Iterator[Ask]:
    for id in BROKERS:
        for version in (1, 5, 6):
            name = f"gone-{id}-{version}"
            for side in sides:
                side.create(name, [[1, 2], [2, 3]])

            def values(side: Side, name: str = name) -> Values:
                names = [side.topic(name), side.topic("none")]
                return {
                    "topics": [{"name": one, "topic_id": uuid.UUID(int=0)} for one in names],
                    "topic_names": names,
                    "timeout": 10_000,
                }

            yield Ask(f"delete a topic, broker {id}", raw.DELETE_TOPICS, values, broker(id), [version])

    def by_id(side: Side) -> Values:
        return {"topics": [{"name": None, "topic_id": NOBODY}], "timeout": 10_000}

    yield from each("delete an unknown id", raw.DELETE_TOPICS, by_id, versions=[6])


def impatient(sides: list[Side]) -> Iterator[Ask]:
    """Without time, and with names that come twice."""
    for side in sides:
        side.create("known", [[1, 2], [2, 3]])
    for timeout in (0, -1):
        named: dict[str, tuple[int, Callable[[Side], Values]]] = {
            "create": (raw.CREATE_TOPICS, lambda side: {"topics": [_plain_topic(side, "late")]}),
            "grow": (raw.CREATE_PARTITIONS, lambda side: {"topics": [_grown(side, "known")]}),
            "delete": (
                raw.DELETE_TOPICS,
                lambda side: {
                    "topics": [{"name": side.topic("known"), "topic_id": uuid.UUID(int=0)}],
                    "topic_names": [side.topic("known")],
                },
            ),
            "elect": (ELECT_LEADERS, elected("known", 0, 0)),
            "reassign": (REASSIGN, reassigned("known", 0, {"replicas": [1, 2]})),
            "list": (LIST_REASSIGNMENTS, always({"topics": None})),
        }
        for label, (key, values) in named.items():
            yield from each(
                f"{label} within {timeout} ms",
                key,
                lambda side, values=values, timeout=timeout: values(side) | {"timeout": timeout},
            )
    twice: dict[str, tuple[int, Callable[[Side], Values]]] = {
        "create": (raw.CREATE_TOPICS, lambda side: {"topics": [_plain_topic(side, "late")] * 2}),
        "grow": (raw.CREATE_PARTITIONS, lambda side: {"topics": [_grown(side, "known")] * 2}),
    }
    for label, (key, values) in twice.items():
        yield from each(f"{label} twice", key, lambda side, values=values: values(side) | {"timeout": 5000})


def _plain_topic(side: Side, name: str) -> Values:
    return {"name": side.topic(name), "num_partitions": 1, "replication_factor": 1}


def _grown(side: Side, name: str) -> Values:
    return {"name": side.topic(name), "count": 3, "assignments": None}


def create_partitions(sides: list[Side]) -> Iterator[Ask]:
    for side in sides:
        side.create("grown", [[1, 2], [2, 3]])
    yield from growths("all there")


def growths(when: str) -> Iterator[Ask]:
    wrong: dict[str, Values] = {
        "the same number": {"count": 2},
        "fewer": {"count": 1},
        "0": {"count": 0},
        "-1": {"count": -1},
        "one more": {"count": 3},
        "too few assignments": {"count": 4, "assignments": [{"broker_ids": [1, 2]}]},
        "another factor": {"count": 3, "assignments": [{"broker_ids": [1]}]},
        "the same broker twice": {"count": 3, "assignments": [{"broker_ids": [1, 1]}]},
        "an unknown broker": {"count": 3, "assignments": [{"broker_ids": [1, 9]}]},
        "no brokers": {"count": 3, "assignments": [{"broker_ids": []}]},
        "no assignments": {"count": 3, "assignments": []},
        "brokers": {"count": 3, "assignments": [{"broker_ids": [3, 1]}]},
    }
    for label, topic in wrong.items():
        yield from each(
            f"grow to {label}, {when}",
            raw.CREATE_PARTITIONS,
            lambda side, topic=topic: {
                "topics": [{"name": side.topic("grown"), "assignments": None} | topic],
                "timeout": 10_000,
                "validate_only": True,
            },
        )
    yield from each(
        f"grow what is not there, {when}",
        raw.CREATE_PARTITIONS,
        lambda side: {
            "topics": [{"name": side.topic("none"), "count": 3, "assignments": None}],
            "timeout": 10_000,
        },
    )


def reassign(sides: list[Side]) -> Iterator[Ask]:
    for side in sides:
        side.create("moving", [[1, 2]])
    wrong: dict[str, Values] = {
        "nothing": {"replicas": []},
        "a broker twice": {"replicas": [1, 1]},
        "an unknown broker": {"replicas": [1, 9]},
        "a negative broker": {"replicas": [1, -3]},
        "what it has": {"replicas": [1, 2]},
        "null": {"replicas": None},
        "more": {"replicas": [1, 2, 3]},
        "fewer": {"replicas": [1]},
    }
    for label, part in wrong.items():
        if label in ("more", "fewer"):
            continue
        yield from each(f"reassign to {label}", REASSIGN, reassigned("moving", 0, part))
    for label in ("more", "fewer"):
        values = reassigned("moving", 0, wrong[label], allow_replication_factor_change=False)
        yield from each(f"reassign to {label}, which is not allowed", REASSIGN, values, versions=[1])
    yield from each("reassign an unknown partition", REASSIGN, reassigned("moving", 7, {"replicas": [1, 2]}))
    yield from each("reassign an unknown topic", REASSIGN, reassigned("none", 0, {"replicas": [1, 2]}))
    yield from each("reassign without topics", REASSIGN, always({"topics": [], "timeout": 5000}))
    yield from each(
        "list reassignments of none",
        LIST_REASSIGNMENTS,
        lambda side: {"topics": [{"name": side.topic("none"), "partition_indexes": [0]}], "timeout": 5000},
    )
    yield from each(
        "list reassignments of one",
        LIST_REASSIGNMENTS,
        lambda side: {
            "topics": [{"name": side.topic("moving"), "partition_indexes": [0, 7]}],
            "timeout": 5000,
        },
    )
    yield from each("list all reassignments", LIST_REASSIGNMENTS, always({"topics": None, "timeout": 5000}))
    yield from each("list no reassignments", LIST_REASSIGNMENTS, always({"topics": [], "timeout": 5000}))


def slow_reassignments(sides: list[Side]) -> Iterator[Ask]:
    """Of a partition that is not moved for a while, since its replicas are throttled."""
    for side in sides:
        side.create("slow", [[1, 2]], {f"{who}.replication.throttled.replicas": "*" for who in THROTTLED})
        for _ in range(8):
            side.produce(1, "slow", raw.batch([bytes(500_000)]))
        throttle(side, "1000")
    time.sleep(2)
    one = reassigned("slow", 0, {"replicas": [1, 3]})
    listed = {"timeout": 5000, "topics": None}

    def mine(answer: Any) -> Any:
        answer["topics"] = [topic for topic in answer["topics"] if topic["name"] == "slow"]
        return answer

    yield Ask("begin a reassignment", REASSIGN, one, broker(2), [1])
    yield from each("list what is under way", LIST_REASSIGNMENTS, always(listed), shown=mine)
    yield from metadata_of("under way", ("slow",))
    for label, replicas in {"fewer": [1], "more": [1, 2, 3]}.items():
        values = reassigned("slow", 0, {"replicas": replicas}, allow_replication_factor_change=False)
        yield from each(f"change it to {label}, which is not allowed", REASSIGN, values, versions=[1])
    yield Ask("elect while under way", ELECT_LEADERS, elected("slow", 0, 0), broker(3), [2])
    another = reassigned("slow", 0, {"replicas": [3, 2]})
    yield Ask("begin another in its place", REASSIGN, another, broker(3), [1])
    yield from each("list the other", LIST_REASSIGNMENTS, always(listed), shown=mine)
    yield Ask("elect who is not in sync", ELECT_LEADERS, elected("slow", 0, 0), broker(1), [2])
    cancelled = reassigned("slow", 0, {"replicas": None})
    yield Ask("call it off", REASSIGN, cancelled, broker(1), [1])
    yield Ask("call it off again", REASSIGN, cancelled, broker(1), [1])
    yield from each("list what was called off", LIST_REASSIGNMENTS, always(listed), shown=mine)
    yield from metadata_of("called off", ("slow",))
    for side in sides:
        throttle(side, None)


def throttle(side: Side, rate: str | None) -> None:
    """What brokers let through of throttled replicas; None is everything."""
    operation = 1 if rate is None else 0
    changes = [
        {"name": f"{who}.replication.throttled.rate", "config_operation": operation, "value": rate}
        for who in THROTTLED
    ]
    for id in BROKERS:
        resource = {"resource_type": 4, "resource_name": str(id), "configs": changes}
        side.call(id, raw.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})


def reassigned(name: str, index: int, part: Values, **options: Any) -> Callable[[Side], Values]:
    return lambda side: (
        {
            "timeout": 10_000,
            "allow_replication_factor_change": True,
            "topics": [{"name": side.topic(name), "partitions": [{"partition_index": index} | part]}],
        }
        | options
    )


def elections(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    yield from elections_of("all there")


def elections_of(when: str) -> Iterator[Ask]:
    for kind in (0, 1, 7):
        for name, index in (("led", 0), ("led", 2), ("led", 9), ("none", 0)):
            yield from each(
                f"elect {name}-{index}, type {kind}, {when}", ELECT_LEADERS, elected(name, index, kind)
            )
        empty = {"election_type": kind, "timeout": 10_000, "topic_partitions": []}
        yield from each(f"elect nothing, type {kind}, {when}", ELECT_LEADERS, always(empty))

    def mine(answer: Any) -> Any:
        results = answer["replica_election_results"]
        answer["replica_election_results"] = [
            one for one in results if one["topic"] in ("led", "moved", "grown")
        ]
        return answer

    everything = {"election_type": 0, "timeout": 10_000, "topic_partitions": None}
    yield from each(f"elect all, {when}", ELECT_LEADERS, always(everything), shown=mine)


def elected(name: str, index: int, kind: int) -> Callable[[Side], Values]:
    return lambda side: {
        "election_type": kind,
        "timeout": 10_000,
        "topic_partitions": [{"topic": side.topic(name), "partitions": [index]}],
    }
