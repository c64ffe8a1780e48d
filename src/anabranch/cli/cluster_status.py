"""Cluster status: the brokers, the controller, and the partitions that are not as they should be.

under-replicated      a replica is not in sync
under-min-ISR         fewer are in sync than `min.insync.replicas` asks for, or than there are replicas if it
                      asks for more: acks=all is refused
offline               no leader
reassignments         on their way to other brokers: which of those that are added are in sync, and how far
                      each is behind the leader's log end
"""

from collections.abc import Iterable
from typing import Any

from anabranch.cli.client import TOPIC
from anabranch.cli.log_ends import LogEnds, lag_cells, topics_and_ends
from anabranch.cli.output import print_table
from anabranch.client.answers import check_told
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import ANY, CONTROLLER, TopicPartition
from anabranch.client.requests import (
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
    Request,
)

_MIN_ISR = "min.insync.replicas"
_TOPICS_AT_ONCE = 200
_BROKERS = 1  # DescribeCluster: not controllers

Row = dict[str, Any]


def cluster_status(cluster: Cluster) -> Row:
    """What is shown, as it is printed in JSON."""
    answer = cluster.metadata(None)
    partitions = [
        _row(topic, part) for topic in answer.topics if not topic.error_code for part in topic.partitions
    ]
    least = _least_in_sync(cluster, {row["topic"] for row in partitions})
    offline = [row for row in partitions if row["leader"] is None]
    lacking = [row for row in partitions if len(row["isr"]) < len(row["replicas"])]
    under_min = [
        row for row in partitions if len(row["isr"]) < min(least.get(row["topic"], 1), len(row["replicas"]))
    ]
    return {
        "cluster": answer.cluster_id,
        "controller": answer.controller_id if answer.controller_id >= 0 else None,
        "brokers": _brokers(cluster, partitions),
        "partitions": len(partitions),
        "under_replicated": lacking,
        "under_min_isr": under_min,
        "offline": offline,
        "reassignments": _reassignments(cluster),
    }


def _brokers(cluster: Cluster, partitions: list[Row]) -> list[Row]:
    """From DescribeCluster: Metadata names a broker for a while after it has gone."""
    values = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": _BROKERS,
        "include_fenced_brokers": True,
    }
    answer = cluster.send(ANY, Request(DESCRIBE_CLUSTER, values))
    check_told(answer.error_code, answer.error_message, "the brokers")
    return [
        {
            "broker": broker.broker_id,
            "state": "away" if getattr(broker, "is_fenced", False) else "there",
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "leads": sum(row["leader"] == broker.broker_id for row in partitions),
            "replicas": sum(broker.broker_id in row["replicas"] for row in partitions),
        }
        for broker in sorted(answer.brokers, key=lambda broker: int(broker.broker_id))
    ]


def print_status(status: Row) -> None:
    controller = "none" if status["controller"] is None else f"broker {status['controller']}"
    print(f"cluster {status['cluster']}  controller {controller}  partitions {status['partitions']}")
    print_table(status["brokers"])
    for title, key in (
        ("under-replicated", "under_replicated"),
        ("under-min-ISR", "under_min_isr"),
        ("offline", "offline"),
        ("reassignments", "reassignments"),
    ):
        rows = [row | {"lag": lag_cells(row["lag"])} if "lag" in row else row for row in status[key]]
        print(f"{title}: {len(rows) or 'none'}")
        print_table(rows)


def _row(topic: Any, part: Any) -> Row:
    replicas, isr = list(part.replica_nodes), list(part.isr_nodes)
    return {
        "topic": topic.name,
        "partition": part.partition_index,
        "leader": part.leader_id if part.leader_id >= 0 else None,
        "replicas": replicas,
        "isr": isr,
        "osr": out_of_sync(replicas, isr),
    }


def out_of_sync(replicas: Iterable[int], isr: Iterable[int]) -> list[int]:
    in_sync = set(isr)
    return [broker for broker in replicas if broker not in in_sync]


def _least_in_sync(cluster: Cluster, topics: set[str]) -> dict[str, int]:
    """By topic, how many replicas have to be in sync."""
    names = sorted(topics)
    found: dict[str, int] = {}
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        resources = [
            {"resource_type": TOPIC, "resource_name": name, "configuration_keys": [_MIN_ISR]}
            for name in names[start : start + _TOPICS_AT_ONCE]
        ]
        values = {"resources": resources, "include_synonyms": False, "include_documentation": False}
        for result in cluster.send(ANY, Request(DESCRIBE_CONFIGS, values)).results:
            for config in result.configs:
                found[result.resource_name] = int(config.value)
    return found


def _reassignments(cluster: Cluster) -> list[Row]:
    values = {"timeout": round(cluster.settings.timeout_s * 1000), "topics": None}
    answer = cluster.send(CONTROLLER, Request(LIST_PARTITION_REASSIGNMENTS, values))
    check_told(answer.error_code, answer.error_message, "the reassignments")
    moving = {
        TopicPartition(topic.name, part.partition_index): part
        for topic in answer.topics
        for part in topic.partitions
    }
    if not moving:
        return []
    topics, ends = topics_and_ends(cluster, sorted({partition.topic for partition in moving}))
    found = {
        TopicPartition(topic.name, one.partition_index): one for topic in topics for one in topic.partitions
    }
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(part.replicas),
            "adding": list(part.adding_replicas),
            "removing": list(part.removing_replicas),
            **_progress(partition, list(part.adding_replicas), found.get(partition), ends),
        }
        for partition, part in moving.items()
    ]


def _progress(partition: TopicPartition, adding: list[int], now: Any | None, ends: LogEnds) -> Row:
    """Of those that are added.  `now` is what Metadata says of the partition, None if it has just gone."""
    leader, isr = (-1, []) if now is None else (now.leader_id, list(now.isr_nodes))
    return {
        "in_sync": [broker for broker in adding if broker in isr],
        "lag": {str(broker): ends.lag(partition, leader, broker) for broker in adding},
    }
