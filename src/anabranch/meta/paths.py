"""Where the cluster's documents live in the metadata store.

    /cluster                              ClusterDocument
    /controller                           ControllerDocument, ephemeral: whoever makes it first
    /brokers/<id>                         BrokerDocument, ephemeral
    /topics/<tenant>/<namespace>/<local>  TopicDocument
    /partitions/<topic id>/<index>        PartitionDocument, if it is not what a new partition has
    /config/brokers/<id>                  ConfigDocument; `default` for those of every broker
    /config/client-metrics/<name>         ConfigDocument; the name percent-encoded
    /producer-ids                         ProducerIdsDocument

The state of partitions stands apart from the topics because it changes with every election and
in-sync set, and under the topic's id because a topic that is deleted and made again must not find
the state of its predecessor.
"""

from urllib.parse import quote, unquote

from anabranch.base.errors import Invalid
from anabranch.base.ids import BrokerId, TopicId, TopicName

ROOT = "/"
CLUSTER = "/cluster"
CONTROLLER = "/controller"
BROKERS = "/brokers"
TOPICS = "/topics"
PARTITIONS = "/partitions"
BROKER_CONFIGS = "/config/brokers"
DEFAULT_BROKER_CONFIG = "/config/brokers/default"
CLIENT_METRICS = "/config/client-metrics"
PRODUCER_IDS = "/producer-ids"


def broker(id: BrokerId) -> str:
    return f"{BROKERS}/{id}"


def topic(name: TopicName) -> str:
    return f"{TOPICS}/{name.tenant}/{name.namespace}/{name.local}"


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
    # quote() leaves dots alone, and "." and ".." are not names in a path.
    return f"{CLIENT_METRICS}/{quote(name, safe='').replace('.', '%2E')}"


def client_metrics_name(last: str) -> str:
    """The name behind the last part of a path that `client_metrics` made."""
    return unquote(last)
