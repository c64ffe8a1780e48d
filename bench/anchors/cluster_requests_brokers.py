"""Requests of cluster_differential.py: what brokers say of the cluster and of themselves."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

from cluster_sides import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_QUORUM,
    UNREGISTER_BROKER,
    Ask,
    Side,
    always,
    broker,
    each,
    led,
)
from clusters import BROKERS

from tests.compat.clients import raw


def cluster(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    yield from cluster_of("all there")
    yield from each("unregister broker 99", UNREGISTER_BROKER, always({"broker_id": 99}))
    yield from each("unregister broker -1", UNREGISTER_BROKER, always({"broker_id": -1}))
    for where, name, index in (
        ("here", "led", 0),
        ("here", "led", 1),
        ("here", "led", 9),
        ("here", "none", 0),
        ("/nowhere", "led", 0),
        ("relative", "led", 0),
    ):
        for id in BROKERS:
            yield Ask(
                f"alter log dir of {name}-{index} to {where}, broker {id}",
                ALTER_REPLICA_LOG_DIRS,
                lambda side, where=where, name=name, index=index, id=id: {
                    "dirs": [
                        {
                            "path": log_dir(side, id) if where == "here" else where,
                            "topics": [{"name": side.topic(name), "partitions": [index]}],
                        }
                    ]
                },
                broker(id),
            )


def log_dir(side: Side, id: int) -> str:
    return str(side.call(id, raw.DESCRIBE_LOG_DIRS, 4, {"topics": []}).results[0].log_dir)


def cluster_of(when: str) -> Iterator[Ask]:
    for kind, fenced in itertools.product((1, 2, 3), (False, True)):
        asked = {
            "endpoint_type": kind,
            "include_fenced_brokers": fenced,
            "include_cluster_authorized_operations": True,
        }
        yield from each(
            f"describe cluster {kind}, fenced {fenced}, {when}", raw.DESCRIBE_CLUSTER, always(asked)
        )
    for name, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
        asked = {"topics": [{"topic_name": name, "partitions": [{"partition_index": index}]}]}
        yield from each(f"describe quorum {name}-{index}, {when}", DESCRIBE_QUORUM, always(asked))

    def mine(answer: Any) -> Any:
        for folder in answer["results"]:
            folder["topics"] = [one for one in folder["topics"] if one["name"] in ("led", "moved", "alone")]
        return answer

    yield from each(f"log dirs of all, {when}", raw.DESCRIBE_LOG_DIRS, always({"topics": None}), shown=mine)
    yield from each(
        f"log dirs of some, {when}",
        raw.DESCRIBE_LOG_DIRS,
        lambda side: {
            "topics": [
                {"topic": side.topic("led"), "partitions": [0, 1, 2, 9]},
                {"topic": side.topic("none"), "partitions": [0]},
            ]
        },
    )


def configs(sides: list[Side]) -> Iterator[Ask]:
    led(sides)
    keys = ["log.cleaner.threads", "leader.replication.throttled.rate"]
    for name in ("1", "2", "9", "", "x", "-1"):
        for kind in (4, 8):
            resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            asked = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
            yield from each(f"describe configs {kind} {name!r}", raw.DESCRIBE_CONFIGS, always(asked))
            for only_check in (True, False):
                change = {
                    "name": "leader.replication.throttled.rate",
                    "config_operation": 0,
                    "value": "1000000",
                }
                asked = {
                    "resources": [{"resource_type": kind, "resource_name": name, "configs": [change]}],
                    "validate_only": only_check,
                }
                yield from each(
                    f"alter configs {kind} {name!r} {only_check=}",
                    raw.INCREMENTAL_ALTER_CONFIGS,
                    always(asked),
                )
        time.sleep(0.3)
    yield from each(
        "describe configs of the cluster afterwards",
        raw.DESCRIBE_CONFIGS,
        always(
            {
                "resources": [{"resource_type": 4, "resource_name": "", "configuration_keys": keys}],
                "include_synonyms": True,
            }
        ),
    )
    for name, kind in (
        ("1", 4),
        ("2", 4),
        ("", 4),
        ("x", 4),
        ("1", 8),
        ("led", 2),
        ("", 2),
        ("g", 32),
        ("m", 16),
    ):
        for value in ("1000000", "-5", None):
            option = {4: "leader.replication.throttled.rate", 8: "root", 2: "retention.ms"}.get(
                kind, "interval.ms"
            )
            change = {"name": option, "value": value}
            yield from each(
                f"replace configs {kind} {name!r} {value}",
                raw.ALTER_CONFIGS,
                lambda side, kind=kind, name=name, change=change: {
                    "resources": [
                        {
                            "resource_type": kind,
                            "resource_name": side.topic(name) if name == "led" else name,
                            "configs": [change],
                        }
                    ],
                    "validate_only": True,
                },
            )
    for kinds in ([], [2], [4], [8], [16], [32], [64]):
        yield from each(
            f"list config resources {kinds}",
            raw.LIST_CONFIG_RESOURCES,
            always({"resource_types": kinds}),
            shown=lambda answer: answer["error_code"],
        )
    for option in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        for value in ("*", "0:1,1:2", "0:1", "0", "none", "x:y", "", "0:1,*"):
            for operation in (0, 2, 3):
                change = {"name": option, "config_operation": operation, "value": value}
                yield from each(
                    f"alter {option} {operation} {value!r}",
                    raw.INCREMENTAL_ALTER_CONFIGS,
                    lambda side, change=change: {
                        "resources": [
                            {"resource_type": 2, "resource_name": side.topic("led"), "configs": [change]}
                        ],
                        "validate_only": True,
                    },
                    versions=[1],
                )
    for rate in ("0", "-1", "many", "9223372036854775808"):
        change = {"name": "leader.replication.throttled.rate", "config_operation": 0, "value": rate}
        asked = {
            "resources": [{"resource_type": 4, "resource_name": "", "configs": [change]}],
            "validate_only": True,
        }
        yield from each(
            f"alter the throttle to {rate}", raw.INCREMENTAL_ALTER_CONFIGS, always(asked), versions=[1]
        )
