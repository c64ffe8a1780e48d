"""Metadata paths: where the cluster's documents live in the metadata store.

    /cluster                              ClusterDocument
    /controller                           ControllerDocument, ephemeral: whoever makes it first
    /controller-epoch                     the same, of who was the last; its version is the controller's epoch
    /controller-brokers                   BrokersSeenDocument: those there are, and were
    /brokers/<id>                         BrokerDocument, ephemeral
    /tenants/<tenant>                     TenantDocument
    /namespaces/<tenant>/<namespace>      NamespacePolicies
    /topics/<tenant>/<namespace>/<local>  TopicDocument
    /non-persistent/<the same>            NonPersistentDocument, ephemeral if it is not partitioned
    /partitions/<topic id>                PartitionStatesDocument, if any is not as it was made
    /partitions/<topic id>-<page>         the same, from the page's first partition on
    /config/brokers/<id>                  ConfigDocument; `default` for those of every broker
    /config/client-metrics/<name>         ConfigDocument; the name percent-encoded
    /config/groups/<id>                   ConfigDocument; the id percent-encoded
    /producer-ids                         ProducerIdsDocument
    /schemas/...                          the registry of schemas (`schemas/documents.py`)

Names are percent-encoded where they are not of Kafka's letters (`base/path_parts.py`).

The state of partitions stands apart from the topics because it changes with every election and
in-sync set, and under the topic's id because a topic that is deleted and made again must not find
the state of its predecessor.  It is in one document for all partitions of a topic, or several where one
would become too large for a node.
"""

from urllib.parse import quote, unquote
from uuid import UUID

from anabranch.base.errors import Invalid
from anabranch.base.ids import BrokerId, Namespace, TopicId, TopicName
from anabranch.base.path_parts import path_part

ROOT = "/"
CLUSTER = "/cluster"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"
CONTROLLER_BROKERS = "/controller-brokers"
BROKERS = "/brokers"
TENANTS = "/tenants"
NAMESPACES = "/namespaces"
TOPICS = "/topics"
NON_PERSISTENT = "/non-persistent"
PARTITIONS = "/partitions"
BROKER_CONFIGS = "/config/brokers"
DEFAULT_BROKER_CONFIG = "/config/brokers/default"
CLIENT_METRICS = "/config/client-metrics"
GROUP_CONFIGS = "/config/groups"
PRODUCER_IDS = "/producer-ids"
SUBJECTS = "/schemas/subjects"
SCHEMA_IDS = "/schemas/ids"
SCHEMA_GUIDS = "/schemas/guids"
SCHEMA_DEFINITIONS = "/schemas/definitions"
SCHEMA_SETTINGS = "/schemas/settings"

_ID_LENGTH = len(str(UUID(int=0)))
# About 100 bytes each, 200 with many replicas; a node holds 1,000,000.
_STATES_PER_PAGE = 4096


def broker(id: BrokerId) -> str:
    return f"{BROKERS}/{id}"


def tenant(name: str) -> str:
    return f"{TENANTS}/{path_part(name)}"


def namespace(name: Namespace) -> str:
    return f"{NAMESPACES}/{path_part(name.tenant)}/{path_part(name.name)}"


def topic(name: TopicName) -> str:
    parts = "/".join(map(path_part, (name.tenant, name.namespace, name.local)))
    return f"{TOPICS if name.is_persistent else NON_PERSISTENT}/{parts}"


def partition_states(id: TopicId, page: int) -> str:
    return f"{PARTITIONS}/{id}-{page}" if page else f"{PARTITIONS}/{id}"


def partition_states_page(last: str) -> tuple[TopicId, int]:
    """The topic and page behind the last part of a path that `partition_states` made."""
    id, page = last[:_ID_LENGTH], last[_ID_LENGTH:]
    return TopicId(UUID(id)), int(page.removeprefix("-") or 0)


def page_of(index: int) -> int:
    """The page that has the state of a partition."""
    return index // _STATES_PER_PAGE


def pages_of(partitions: int) -> range:
    """The pages that have the state of so many partitions."""
    return range(-(-partitions // _STATES_PER_PAGE))


def broker_config(id: BrokerId | None) -> str:
    return DEFAULT_BROKER_CONFIG if id is None else f"{BROKER_CONFIGS}/{id}"


def client_metrics(name: str) -> str:
    if not name:
        raise Invalid("a client metrics subscription must have a name")
    return f"{CLIENT_METRICS}/{_quoted(name)}"


def client_metrics_name(last: str) -> str:
    """The name behind the last part of a path that `client_metrics` made."""
    return unquote(last)


def group_config(group_id: str) -> str:
    if not group_id:
        raise Invalid("a group must have an id")
    return f"{GROUP_CONFIGS}/{_quoted(group_id)}"


def group_config_id(last: str) -> str:
    """The id behind the last part of a path that `group_config` made."""
    return unquote(last)


def _quoted(name: str) -> str:
    """quote() leaves dots alone, and "." and ".." are not names in a path."""
    return quote(name, safe="").replace(".", "%2E")
