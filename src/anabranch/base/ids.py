"""A type for every identity, so that an offset is never passed where an epoch belongs.

A topic is one thing with two spellings.  Underneath it is always
`persistent://tenant/namespace/local`; Kafka's side says `local` for the default namespace and the
full name for any other:

    TopicName.from_kafka("orders")                    -> persistent://public/default/orders
    TopicName.from_kafka("persistent://a/b/orders")   -> persistent://a/b/orders
    TopicName("a", "b", "orders").kafka               -> "persistent://a/b/orders"

Names reach the file system as folder names, so what is legal is decided here and nowhere else.
"""

import base64
import re
from functools import cached_property
from typing import NewType
from uuid import UUID

from anabranch.base.errors import InvalidTopicName

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
TopicId = NewType("TopicId", UUID)

NO_PRODUCER = ProducerId(-1)

# Kafka's rule (its class Topic): 249 leaves room for "-<partition>" and ".<id>-delete".
MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_FULL = re.compile(r"persistent://([^/]+)/([^/]+)/([^/]+)")


def id_text(id: UUID) -> str:
    """An id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(id.bytes).rstrip(b"=").decode("ascii")


def _check(part: str, whole: str) -> None:
    if not part:
        raise InvalidTopicName(f"topic name {whole!r} is empty")
    if part in (".", ".."):
        raise InvalidTopicName(f"topic name {whole!r} cannot be '.' or '..'")
    if not _LEGAL.fullmatch(part):
        raise InvalidTopicName(
            f"topic name {whole!r} is illegal, it contains a character other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )


class TopicName:
    """A checked topic name.  Equal and hashed by its three parts."""

    def __init__(self, tenant: str, namespace: str, local: str) -> None:
        whole = f"persistent://{tenant}/{namespace}/{local}"
        longest = max(len(tenant), len(namespace), len(local))
        if longest > MAX_NAME_LENGTH:  # first: the other complaints repeat the name
            raise InvalidTopicName(f"topic name is {longest} characters long, the limit is {MAX_NAME_LENGTH}")
        for part in (tenant, namespace, local):
            _check(part, local if tenant == "public" and namespace == "default" else whole)
        self.tenant = tenant
        self.namespace = namespace
        self.local = local

    @classmethod
    def from_kafka(cls, name: str) -> "TopicName":
        """The topic that a Kafka client means by `name`.  InvalidTopicName if it can mean none."""
        full = _FULL.fullmatch(name)
        return cls(*full.groups()) if full else cls("public", "default", name)

    @cached_property
    def kafka(self) -> str:
        """What Kafka clients call it."""
        in_default = self.tenant == "public" and self.namespace == "default"
        return self.local if in_default else self.pulsar

    @cached_property
    def pulsar(self) -> str:
        """What Pulsar clients call it."""
        return f"persistent://{self.tenant}/{self.namespace}/{self.local}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicName) and self.pulsar == other.pulsar

    def __hash__(self) -> int:
        return hash(self.pulsar)

    def __lt__(self, other: "TopicName") -> bool:
        return self.pulsar < other.pulsar

    def __repr__(self) -> str:
        return f"TopicName({self.pulsar})"
