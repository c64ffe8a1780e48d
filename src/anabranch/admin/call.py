"""One HTTP request as its handler sees it, and the answers that are no JSON."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams

from anabranch.admin.errors import Refused
from anabranch.admin.services import AdminServices
from anabranch.base.errors import UnknownNamespace, UnknownTenant, UnknownTopic
from anabranch.base.ids import Namespace, TopicName
from anabranch.meta.image import AnyTopic, ClusterImage
from anabranch.meta.policies import NamespacePolicies


class Text(NamedTuple):
    """Answered as it is."""

    text: str
    media: str = "text/plain"


class Message(NamedTuple):
    """A message's payload, with what is known of it in headers."""

    payload: bytes
    headers: Mapping[str, str]


class Accepted(NamedTuple):
    """JSON under the status 202, where Pulsar has it so."""

    value: object


class Call:
    __slots__ = ("body", "path", "query", "services")

    def __init__(
        self, services: AdminServices, path: Mapping[str, str], query: QueryParams, body: Any
    ) -> None:
        self.services = services
        self.path = path
        self.query = query
        self.body = body

    # --- what the path names

    @property
    def namespace(self) -> Namespace:
        return Namespace.of(self.path["tenant"], self.path["namespace"])

    @property
    def topic_name(self) -> TopicName:
        path = self.path
        return TopicName(path["tenant"], path["namespace"], path["topic"], path.get("domain", "persistent"))

    @property
    def policies(self) -> NamespacePolicies:
        """Of the namespace that the path names; UnknownNamespace or UnknownTenant if it is not there."""
        found = self.image.namespaces.get(self.namespace)
        if found is None:
            if self.path["tenant"] not in self.image.tenants:
                raise UnknownTenant("Tenant does not exist")
            raise UnknownNamespace("Namespace does not exist")
        return found

    @property
    def topic(self) -> AnyTopic:
        """The topic that the path names, as a whole; UnknownTopic if it is not there."""
        name = self.topic_name
        found = self.image.topic(name)
        if found is None:
            self.services.pulsar.catalog.policies(name.in_namespace)
            raise UnknownTopic(f"Topic {name.pulsar} not found")
        return found

    @property
    def image(self) -> ClusterImage:
        return self.services.pulsar.cluster.image

    @property
    def cluster_name(self) -> str:
        return self.services.pulsar.config.current.pulsar.cluster_name

    # --- what the query says

    def flag(self, name: str, default: bool = False) -> bool:
        text = self.query.get(name)
        return default if text is None else text.lower() == "true"

    def several(self, name: str) -> list[str]:
        """What is said under a name that may come more than once."""
        return self.query.getlist(name)

    def number(self, name: str, default: int) -> int:
        return default if name not in self.query else whole_number(self.query[name], name)

    def path_number(self, name: str) -> int:
        return whole_number(self.path[name], name)


def whole_number(text: str, name: str) -> int:
    """The number that `text` spells; Refused if it is none."""
    if len(text) > 20 or not text.removeprefix("-").isdecimal():
        raise Refused(400, f"{name} must be a whole number, not {text[:100]!r}")
    return int(text)
