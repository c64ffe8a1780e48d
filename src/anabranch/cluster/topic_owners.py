"""Topic owner: the broker that serves a topic, or a partition of one, to Pulsar clients.

    persistent        the leader of its partition
    non-persistent    the broker that has the highest hash with the name, of those that serve Pulsar clients

Brokers that have the same image agree, without asking each other.
"""

from hashlib import blake2b

from anabranch.base.errors import NotOwner
from anabranch.base.ids import BrokerId, TopicName
from anabranch.meta.image import NO_EPOCH, BrokerImage, ClusterImage, TopicImage, locate


def owner_of(image: ClusterImage, name: TopicName) -> BrokerId | None:
    """NO_BROKER while none is elected; None if any broker will do: the topic is not there yet."""
    if not name.is_persistent:
        return _owner_of_unstored(image, name)
    located = locate(image, name)
    if located is None:
        return None
    assert isinstance(located.topic, TopicImage)
    return located.topic.partitions[located.partition].leader


def check_owner(image: ClusterImage, me: BrokerId, name: TopicName) -> None:
    """NotOwner if another broker is to serve a topic that is not stored."""
    owner = _owner_of_unstored(image, name)
    if owner not in (None, me):
        raise NotOwner(f"{name.pulsar} is served by broker {owner}", owner, NO_EPOCH)


def _owner_of_unstored(image: ClusterImage, name: TopicName) -> BrokerId | None:
    serving = [broker for broker in image.brokers.values() if broker.pulsar is not None]
    staying = [broker for broker in serving if not broker.gives_way] or serving
    if not staying:
        return None

    def weight(broker: BrokerImage) -> bytes:
        return blake2b(f"{broker.id} {name.pulsar}".encode(), digest_size=16).digest()

    return max(staying, key=weight).id
