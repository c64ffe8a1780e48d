"""A follower's part of Fetch: the log as it is, up to its end, and what that says of how far the follower is.

Nothing is translated, left out or shared with consumers' sessions.  A follower has everything below the
offset that it asks for, so the high watermark may move before it is answered.  That counts once for each
request: when one that waits is looked at again, that is the leader's doing and no sign of the follower.
"""

from anabranch.base.errors import NotOwner, UnknownLeaderEpoch
from anabranch.base.ids import BrokerId
from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition
from anabranch.partition.partition_log import Isolation
from anabranch.partition.throttling import Throttle
from anabranch.server.fetch_sessions import Wanted
from anabranch.wire.kafka.fetch import Fetched


def read_for_replica(
    host: PartitionHost,
    partition: Partition,
    wanted: Wanted,
    replica: BrokerId,
    epoch: int,
    max_bytes: int,
    *,
    whole_first: bool,
    is_repeated: bool,
) -> Fetched:
    """UnknownLeaderEpoch, or NotOwner if it named none, if the broker has no replica that is known here."""
    if not partition.has_replica(replica):
        if wanted.leader_epoch >= 0:  # which is this one's: the follower knows of replicas that come
            raise UnknownLeaderEpoch(f"{partition}: broker {replica} has no replica of it yet")
        state = partition.state
        raise NotOwner(
            f"{partition}: broker {replica} has no replica of it", state.leader, state.leader_epoch
        )
    offset = wanted.fetch_offset
    throttle = _throttle(host, partition, replica)
    if throttle is not None and throttle.is_exceeded:
        max_bytes, whole_first = 0, False
    records = partition.read(offset, max_bytes, Isolation.LOG_END, whole_first=whole_first)
    if not is_repeated:
        partition.replica_reached(replica, offset, wanted.replica_start, epoch)
    return Fetched(
        wanted.index,
        0,
        partition.high_watermark,
        partition.last_stable,
        partition.log_start,
        None,
        records,
    )


def gave_replica(host: PartitionHost, partition: Partition, replica: BrokerId, size_bytes: int) -> None:
    """It was answered with so much; what was read and not given costs a throttle nothing."""
    partition.replication_bytes_out += size_bytes
    throttle = _throttle(host, partition, replica)
    if throttle is not None:
        throttle.let_through(size_bytes)


def _throttle(host: PartitionHost, partition: Partition, replica: BrokerId) -> Throttle | None:
    """What holds the replica back, if anything."""
    throttle = host.replication.leader_throttle
    if replica in partition.state.isr or not throttle.is_on or not host.is_throttled(partition):
        return None
    return throttle
