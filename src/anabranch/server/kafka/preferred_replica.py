"""Preferred read replica: the follower that a consumer should read from, since it is in its rack (KIP-392).

    replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector

The leader says so to a consumer that names its rack, in place of records.  A follower is preferred if it is
in that rack, in sync, and has the offset; of several the one that has most.  A leader in the rack is read.
"""

from collections.abc import Mapping

from anabranch.base.ids import BrokerId
from anabranch.meta.image import NO_BROKER, BrokerImage
from anabranch.partition.partition import Partition


def preferred_replica(
    partition: Partition, rack: str, offset: int, brokers: Mapping[BrokerId, BrokerImage]
) -> BrokerId:
    """NO_BROKER if it is the leader."""
    led, state = partition.led, partition.state
    near = {broker for broker in state.isr if broker in brokers and brokers[broker].rack == rack}
    if led is None or state.leader in near:
        return NO_BROKER
    able = [
        (follower.end, follower.caught_up_s, broker)
        for broker, follower in led.in_sync.followers.items()
        if broker in near and follower.log_start <= offset <= follower.end
    ]
    return max(able)[-1] if able else NO_BROKER
