"""Where the cluster's documents live in the metadata store.

    /cluster                              ClusterDocument
    /controller                           ControllerDocument, ephemeral: whoever makes it first
    /brokers/<id>                         BrokerDocument, ephemeral
    /tenants/<tenant>                     TenantDocument
    /namespaces/<tenant>/<namespace>      NamespacePolicies
    /topics/<tenant>/<namespace>/<local>  TopicDocument
    /non-persistent/<the same>            NonPersistentDocument, ephemeral if it is not partitioned
    /partitions/<topic id>/<index>        PartitionDocument, if it is not what a new partition has
    /config/brokers/<id>                  ConfigDocument; `default` for those of every broker
    /config/client-metrics/<name>         ConfigDocument; the name percent-encoded
    /config/groups/<id>                   ConfigDocument; the id percent-encoded
    /producer-ids                         ProducerIdsDocument
    /schemas/...                          the registry of schemas (`schemas/documents.py`)

Names are percent-encoded where they are not of Kafka's letters (`base/path_parts.py`).

The state of partitions stands apart from the topics because it changes with every election and
in-sync set, and under the topic's id because a topic that is deleted and made again must not find
the state of its predecessor.
"""

from urllib.parse import quote, unquote

from anabranch.base.errors import Invalid
from anabranch.base.ids import BrokerId, Namespace, TopicId, TopicName
from anabranch.base.path_parts import path_part

ROOT = "/"
CLUSTER = "/cluster"
CONTROLLER = "/controller"
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


def broker(id: BrokerId) -> str:
    return f"{BROKERS}/{id}"


def tenant(name: str) -> str:
    return f"{TENANTS}/{path_part(name)}"


def namespace(name: Namespace) -> str:
    return f"{NAMESPACES}/{path_part(name.tenant)}/{path_part(name.name)}"


def topic(name: TopicName) -> str:
    parts = "/".join(map(path_part, (name.tenant, name.namespace, name.local)))
    return f"{TOPICS if name.is_persistent else NON_PERSISTENT}/{parts}"


def partitions(id: TopicId) -> str:
    """Above the state of all partitions of a topic."""
    return f"{PARTITIONS}/{id}"


def partition(id: TopicId, index: int) -> str:
    return f"{PARTITIONS}/{id}/{index}"


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
