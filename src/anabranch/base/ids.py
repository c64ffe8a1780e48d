"""Ids: a type for every identity, so that an offset is never passed where an epoch belongs.

A topic is one thing with two spellings.  Underneath it is always `domain://tenant/namespace/local`; Kafka's
side says `local` for the default namespace and the full name for any other, Pulsar's side may leave away the
domain, or everything but the local name:

    TopicName.from_kafka("orders")                    -> persistent://public/default/orders
    TopicName.from_kafka("persistent://a/b/orders")   -> persistent://a/b/orders
    TopicName.from_pulsar("a/b/orders")               -> persistent://a/b/orders
    TopicName("a", "b", "orders").kafka               -> "persistent://a/b/orders"

Pulsar's side also names partitions: `split_partition` takes `orders-partition-3` apart.

What is legal is decided here and nowhere else.  Tenants and namespaces have Pulsar's rule.  A local name may
hold anything but a slash and control characters, as Pulsar's may; what a Kafka client names has Kafka's rule.
Names reach the file system through `base/path_parts.py`.
"""

import base64
import re
from functools import cached_property
from typing import NamedTuple, NewType
from uuid import UUID

from anabranch.base.errors import InvalidNamespace, InvalidTopicName

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
TopicId = NewType("TopicId", UUID)

NO_PRODUCER = ProducerId(-1)

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"

# Kafka's rule (its class Topic): 249 leaves room for "-<partition>" and ".<id>-delete".
MAX_NAME_LENGTH = 249
_KAFKA_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)  # Pulsar's rule for tenants, namespaces and clusters
_FULL = re.compile(r"persistent://([^/]+)/([^/]+)/([^/]+)")
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})", re.DOTALL)


def id_text(id: UUID) -> str:
    """An id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(id.bytes).rstrip(b"=").decode("ascii")


def is_entity_name(text: str) -> bool:
    """Whether a tenant, a namespace or a cluster may be called so."""
    return len(text) <= MAX_NAME_LENGTH and text not in (".", "..") and bool(_ENTITY.fullmatch(text))


class Namespace(NamedTuple):
    """A tenant's namespace, `tenant/name`."""

    tenant: str
    name: str

    @classmethod
    def of(cls, tenant: str, name: str) -> "Namespace":
        """InvalidNamespace if one of them cannot be called so."""
        for kind, part in (("tenant", tenant), ("namespace", name)):
            if not is_entity_name(part):
                raise InvalidNamespace(
                    f"{kind} name {part[:MAX_NAME_LENGTH]!r} is illegal: it has at most {MAX_NAME_LENGTH} "
                    "ASCII alphanumerics, '.', '_', '-', ':' and '='"
                )
        return cls(tenant, name)

    @classmethod
    def parse(cls, text: str) -> "Namespace":
        """The namespace that `tenant/name` spells.  InvalidNamespace if it is none."""
        parts = text.split("/")
        if len(parts) == 3:
            raise InvalidNamespace(f"namespace {text[:600]!r} names a cluster, as in Pulsar 1; leave it away")
        if len(parts) != 2:
            raise InvalidNamespace(f"{text[:600]!r} is no namespace, which is written tenant/namespace")
        return cls.of(*parts)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


DEFAULT_NAMESPACE = Namespace("public", "default")


def _check_length(parts: tuple[str, ...]) -> None:
    longest = max(map(len, parts))
    if longest > MAX_NAME_LENGTH:  # first: the other complaints repeat the name
        raise InvalidTopicName(f"topic name is {longest} characters long, the limit is {MAX_NAME_LENGTH}")


def _check_local(local: str, whole: str) -> None:
    if not local:
        raise InvalidTopicName(f"topic name {whole!r} is empty")
    if "/" in local or not local.isprintable():
        raise InvalidTopicName(f"topic name {whole!r} contains a slash or a character that cannot be shown")


def _check_kafka_local(local: str, whole: str) -> None:
    if not local:
        raise InvalidTopicName(f"topic name {whole!r} is empty")
    if local in (".", ".."):
        raise InvalidTopicName(f"topic name {whole!r} cannot be '.' or '..'")
    if not _KAFKA_LEGAL.fullmatch(local):
        raise InvalidTopicName(
            f"topic name {whole!r} is illegal, it contains a character other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )


class TopicName:
    """A checked topic name.  Equal and hashed by its four parts."""

    def __init__(self, tenant: str, namespace: str, local: str, domain: str = PERSISTENT) -> None:
        _check_length((tenant, namespace, local))
        whole = f"{domain}://{tenant}/{namespace}/{local}"
        if domain not in (PERSISTENT, NON_PERSISTENT):
            raise InvalidTopicName(
                f"topic name {whole[:1000]!r} is neither of persistent:// nor of non-persistent://"
            )
        for part in (tenant, namespace):
            if not is_entity_name(part):
                raise InvalidTopicName(f"topic name {whole!r} is illegal: no tenant or namespace is {part!r}")
        _check_local(local, local if (tenant, namespace) == DEFAULT_NAMESPACE else whole)
        self.domain = domain
        self.tenant = tenant
        self.namespace = namespace
        self.local = local

    @classmethod
    def from_kafka(cls, name: str) -> "TopicName":
        """The topic that a Kafka client means by `name`.  InvalidTopicName if it can mean none."""
        full = _FULL.fullmatch(name)
        parts = full.groups() if full else (*DEFAULT_NAMESPACE, name)
        _check_length(parts)
        _check_kafka_local(parts[2], name)
        return cls(*parts)

    @classmethod
    def from_pulsar(cls, name: str) -> "TopicName":
        """The topic that a Pulsar client means by `name`.  InvalidTopicName if it can mean none."""
        domain, mark, rest = name.partition("://")
        parts = (rest if mark else name).split("/")
        if not mark:
            domain = PERSISTENT
            if len(parts) == 1:
                return cls(*DEFAULT_NAMESPACE, name)
        if len(parts) == 3:
            return cls(parts[0], parts[1], parts[2], domain)
        shown = name[:1000]
        if mark and len(parts) == 4:
            raise InvalidTopicName(f"topic name {shown!r} names a cluster, which Pulsar 1 did; leave it away")
        raise InvalidTopicName(
            f"topic name {shown!r} is none of topic, tenant/namespace/topic and domain://tenant/namespace/topic"
        )

    @cached_property
    def kafka(self) -> str:
        """What Kafka clients call it."""
        is_short = self.is_persistent and (self.tenant, self.namespace) == DEFAULT_NAMESPACE
        return self.local if is_short else self.pulsar

    @cached_property
    def pulsar(self) -> str:
        """What Pulsar clients call it."""
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def is_persistent(self) -> bool:
        return self.domain == PERSISTENT

    @property
    def in_namespace(self) -> Namespace:
        return Namespace(self.tenant, self.namespace)

    def partition(self, index: int) -> "TopicName":
        """What Pulsar calls a partition of it."""
        return TopicName(self.tenant, self.namespace, f"{self.local}-partition-{index}", self.domain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicName) and self.pulsar == other.pulsar

    def __hash__(self) -> int:
        return hash(self.pulsar)

    def __lt__(self, other: "TopicName") -> bool:
        return self.pulsar < other.pulsar

    def __repr__(self) -> str:
        return f"TopicName({self.pulsar})"


def split_partition(name: TopicName) -> tuple[TopicName, int | None]:
    """`orders-partition-3` as (`orders`, 3); a name that is no partition's with None."""
    match = _PARTITION.fullmatch(name.local)
    if match is None:
        return name, None
    return TopicName(name.tenant, name.namespace, match[1], name.domain), int(match[2])
