from anabranch.base.ids import BrokerId
from anabranch.meta.image import BrokerImage, ClusterImage
from anabranch.server.kafka.described import partition, partition_for_oldest
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.images import partition_image

TWO = ClusterImage(
    cluster_id="c", brokers={BrokerId(id): BrokerImage(BrokerId(id), "h", id) for id in (1, 2)}
)
AWAY = partition_image(leader=1, replicas=(1, 2, 3), in_sync=(1, 2))


def test_a_replica_that_is_away_is_offline() -> None:
    told = partition(TWO, AWAY)
    assert (told["error_code"], told["replica_nodes"]) == (ErrorCode.none, (1, 2, 3))
    assert (told["isr_nodes"], told["offline_replicas"]) == ((1, 2), [3])


def test_the_oldest_version_leaves_it_out_and_complains() -> None:
    told = partition_for_oldest(TWO, AWAY)
    assert (told["error_code"], told["replica_nodes"]) == (ErrorCode.replica_not_available, [1, 2])
    leaderless = partition_for_oldest(TWO, partition_image(leader=3, replicas=(3,)))
    assert leaderless["error_code"] == ErrorCode.leader_not_available
    assert (leaderless["leader_id"], leaderless["replica_nodes"], leaderless["isr_nodes"]) == (-1, [], [])
    whole = partition_image(leader=1, replicas=(1, 2))
    assert partition_for_oldest(TWO, whole)["error_code"] == ErrorCode.none
