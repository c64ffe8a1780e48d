"""Metadata documents: what is in the metadata store, in JSON, for operators with a ZooKeeper shell.

A field that a reader does not know is ignored and a field that a writer did not know has a default,
so that brokers of two versions can share a cluster while it is being upgraded.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from anabranch.base.errors import Corrupt
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId
from anabranch.client.destinations import Address
from anabranch.meta.policies import TopicPolicies

Document = TypeVar("Document", bound=msgspec.Struct)


_Replicas = Annotated[tuple[BrokerId, ...], Meta(min_length=1)]  # the first is the preferred leader


class ClusterDocument(msgspec.Struct, frozen=True):
    cluster_id: str
    created_ms: int


class ControllerDocument(msgspec.Struct, frozen=True):
    broker: BrokerId
    epoch: int = -1  # for those who are shown it; what counts is the version of its node


class BrokerDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a broker that lives.  The czxid of its node is the broker's epoch."""

    host: str  # where Kafka's clients find it
    port: int
    rack: str | None = None
    internal: Address | None = None  # where brokers find it, if that is elsewhere
    pulsar: Address | None = None
    http: Address | None = None
    host_id: str | None = None  # the machine: what is on it fails together
    version: str = ""
    instance: str = ""  # another one at each start of the process
    directory: str = ""  # the id of its data folder
    gives_way: bool = False  # it leads no more where another can


class TopicDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    id: TopicId
    # By partition, where it was placed when it was made.  If that changed its state says where it is now.
    replicas: Annotated[list[_Replicas], Meta(min_length=1)]
    config: dict[str, str]
    created_ms: int
    partitioned: bool = True  # False: Pulsar clients know it without partitions, and it has one
    policies: TopicPolicies | None = None
    properties: dict[str, str] = {}
    epochs: dict[int, int] = {}  # by partition: how often a producer had it alone
    terminated: dict[int, int] = {}  # by partition: the offset at which it ended, for good


class NonPersistentDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a topic that is not stored; ephemeral unless it is partitioned."""

    partitions: Annotated[int, Meta(ge=1)]
    partitioned: bool
    created_ms: int
    policies: TopicPolicies | None = None
    properties: dict[str, str] = {}


class TenantDocument(msgspec.Struct, frozen=True, rename="camel"):
    admin_roles: list[str] = []
    allowed_clusters: list[str] = []


class PartitionState(msgspec.Struct, frozen=True, omit_defaults=True):
    leader: BrokerId  # -1 for nobody
    leader_epoch: LeaderEpoch  # one more at each election
    partition_epoch: int  # one more at each change of any of this
    isr: tuple[BrokerId, ...]
    replicas: _Replicas
    adding: tuple[BrokerId, ...] = ()  # replicas that a reassignment brings, among `replicas`
    removing: tuple[BrokerId, ...] = ()  # replicas that it takes away once those are in sync, among them too


class PartitionStatesDocument(msgspec.Struct, frozen=True):
    """Of a topic's partitions by index.  One that is not here has the state it was made with."""

    states: dict[int, PartitionState]


class BrokerPlace(msgspec.Struct, frozen=True):
    host: str  # where Kafka's clients find it
    port: int
    rack: str | None = None


class BrokersSeenDocument(msgspec.Struct, frozen=True):
    """By broker, the registration that a controller went by when it last chose leaders."""

    epochs: dict[BrokerId, int]
    directories: dict[BrokerId, str] = {}  # the ids of their data folders
    places: dict[BrokerId, BrokerPlace] = {}


class ConfigDocument(msgspec.Struct, frozen=True):
    overrides: dict[str, str]


class ProducerIdsDocument(msgspec.Struct, frozen=True):
    next: int  # every id below it may be in use


encode = msgspec.json.Encoder().encode

_decoders: dict[type[msgspec.Struct], msgspec.json.Decoder[msgspec.Struct]] = {}


def decode(data: bytes, kind: type[Document], path: str) -> Document:
    """The document at `path`.  Corrupt if it is none of this kind."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        document = decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"metadata node {path} does not hold a {kind.__name__}: {error}") from error
    assert isinstance(document, kind)
    return document
