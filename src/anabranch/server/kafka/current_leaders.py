"""Current leaders: whom a client that asked the wrong broker, or with an old epoch, should ask (KIP-951)."""

from anabranch.base.errors import FencedLeaderEpoch, NotOwner, UnknownTopic, UnknownTopicId
from anabranch.base.ids import BrokerId
from anabranch.partition.host import PartitionHost
from anabranch.server.fetch_sessions import Wanted
from anabranch.server.kafka.errors import code_of
from anabranch.wire.kafka.current_leader import CurrentLeader
from anabranch.wire.kafka.fetch import Fetched
from anabranch.wire.kafka.schema import ErrorCode


def leader_of(error: BaseException | None) -> CurrentLeader | None:
    """The leader of a partition, if the error is that this broker is not."""
    if not isinstance(error, NotOwner) or code_of(error) != ErrorCode.not_leader_or_follower:
        return None
    return CurrentLeader(BrokerId(error.leader), error.epoch)


def not_fetched(error: Exception, wanted: Wanted, host: PartitionHost) -> Fetched:
    """What is answered instead of a partition's records."""
    host.traffic.fetch_failed(error)
    leader = leader_of(error)
    topic = host.find(wanted.topic) if isinstance(error, FencedLeaderEpoch) else None
    if topic is not None:
        state = topic.image.partitions[wanted.index]
        leader = CurrentLeader(state.leader, state.leader_epoch)
    # As Kafka has it: an empty list of what is not there, none of what cannot be read.
    aborted: list[tuple[int, int]] | None = [] if isinstance(error, UnknownTopic | UnknownTopicId) else None
    return Fetched(wanted.index, code_of(error), -1, -1, -1, aborted, None, leader=leader)
