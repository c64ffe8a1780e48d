"""Brokers and partitions in answers: how any API describes them to a client.

A partition whose leader is not among the brokers has none: LEADER_NOT_AVAILABLE, and the client asks
again.  Replicas on brokers that are gone are offline.

There is no authorizer, so whoever asks what it may do may do everything that can be done to a topic
or to the cluster.  Kafka's numbers are bits, one per operation (its class AclOperation):

    3 read  4 write  5 create  6 delete  7 alter  8 describe  9 cluster action
    10 describe configs  11 alter configs  12 idempotent write
"""

from collections.abc import Iterable
from typing import Any

from anabranch.meta.image import NO_BROKER, BrokerImage, ClusterImage, PartitionImage
from anabranch.wire.kafka.schema import ErrorCode

NOT_ASKED = -(1 << 31)
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def brokers(listed: Iterable[BrokerImage], id_field: str) -> list[dict[str, Any]]:
    """`id_field` is what the API calls a broker's id."""
    return [
        {id_field: broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}
        for broker in listed
    ]


def partition(image: ClusterImage, state: PartitionImage) -> dict[str, Any]:
    led = state.leader in image.brokers
    return {
        "error_code": ErrorCode.none if led else ErrorCode.leader_not_available,
        "partition_index": state.index,
        "leader_id": state.leader if led else NO_BROKER,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [id for id in state.replicas if id not in image.brokers],
    }


def partition_for_oldest(image: ClusterImage, state: PartitionImage) -> dict[str, Any]:
    """For Metadata's version 0: without replicas that are offline, and an error if there are any."""
    told = partition(image, state)
    if told["offline_replicas"] and not told["error_code"]:
        told["error_code"] = ErrorCode.replica_not_available
    for which in ("replica_nodes", "isr_nodes"):
        told[which] = [id for id in told[which] if id in image.brokers]
    return told
