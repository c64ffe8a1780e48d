"""What is written in the metadata store: JSON, so that an operator with a ZooKeeper shell can read it.

A field that a reader does not know is ignored and a field that a writer did not know has a default,
so that brokers of two versions can share a cluster while it is being upgraded.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from anabranch.base.errors import Corrupt
from anabranch.base.ids import BrokerId, LeaderEpoch, TopicId
from anabranch.meta.policies import TopicPolicies

Document = TypeVar("Document", bound=msgspec.Struct)


_Replicas = Annotated[tuple[BrokerId, ...], Meta(min_length=1)]  # the first is the preferred leader


class ClusterDocument(msgspec.Struct, frozen=True):
    cluster_id: str
    created_ms: int


class ControllerDocument(msgspec.Struct, frozen=True):
    broker: BrokerId


class BrokerDocument(msgspec.Struct, frozen=True):
    host: str
    port: int
    rack: str | None = None


class TopicDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    id: TopicId
    replicas: Annotated[list[_Replicas], Meta(min_length=1)]  # by partition
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


class PartitionDocument(msgspec.Struct, frozen=True):
    """Absent, a partition is led by its first replica at epoch 0 and all its replicas are in sync."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[BrokerId, ...]


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
