"""Topic owners: the leader of a partition; of topics that are not stored, a broker that all agree on."""

from collections import Counter
from uuid import UUID

import pytest
from msgspec.structs import replace

from anabranch.base.errors import NotOwner
from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.destinations import Address
from anabranch.cluster.topic_owners import check_owner, owner_of
from anabranch.meta.image import NO_BROKER, BrokerImage, ClusterImage
from tests.support.images import led_by, topic_image

ORDERS = TopicName.from_pulsar("orders")
LIVE = [TopicName.from_pulsar(f"non-persistent://public/default/live-{n}") for n in range(300)]


def image(*ids: int, giving_way: tuple[int, ...] = (), without: tuple[int, ...] = ()) -> ClusterImage:
    topic = topic_image(ORDERS, UUID(int=1), 3)
    for index, leader in enumerate((1, 3, NO_BROKER)):
        topic = led_by(topic, index, replace(topic.partitions[index], leader=BrokerId(leader)))
    brokers = {
        BrokerId(id): BrokerImage(
            BrokerId(id),
            "h",
            9092,
            pulsar=None if id in without else Address("h", 6650),
            gives_way=id in giving_way,
        )
        for id in ids
    }
    return ClusterImage(cluster_id="c", brokers=brokers, topics={ORDERS: topic})


def test_a_partition_is_its_leaders() -> None:
    owners = [owner_of(image(1, 2, 3), ORDERS.partition(index)) for index in range(4)]
    assert owners == [1, 3, NO_BROKER, None]
    assert owner_of(image(1, 2, 3), TopicName.from_pulsar("not-there")) is None


def test_topics_that_are_not_stored_are_spread_and_stay_when_another_broker_goes() -> None:
    three, two = ({name: owner_of(image(*ids), name) for name in LIVE} for ids in ((1, 2, 3), (3, 1)))
    assert min(Counter(three.values()).values()) > len(LIVE) / 5
    assert all(two[name] == three[name] for name in LIVE if three[name] != 2)
    assert set(two.values()) == {1, 3}


def test_they_are_on_brokers_that_stay_and_serve_pulsar() -> None:
    assert {owner_of(image(1, 2, 3, giving_way=(1,), without=(2,)), name) for name in LIVE} == {3}
    assert {owner_of(image(1, giving_way=(1,)), name) for name in LIVE} == {1}
    assert owner_of(image(), LIVE[0]) is None


def test_only_the_owner_serves_one() -> None:
    cluster = image(1, 2, 3)
    owner = owner_of(cluster, LIVE[0])
    assert owner is not None
    check_owner(cluster, owner, LIVE[0])
    with pytest.raises(NotOwner) as error:
        check_owner(cluster, BrokerId(4), LIVE[0])
    assert error.value.leader == owner
