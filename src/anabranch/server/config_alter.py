"""Changing the configuration of what the cluster keeps: topics, brokers, groups, client metrics.

A change is a function from overrides to overrides.  It is tried on what this node knows, so that a refusal
costs nothing; if it is to be made, the cluster applies it again to what is stored, with nobody in between,
and it is checked once more there.
"""

from anabranch.base.errors import Invalid, UnknownTopic
from anabranch.base.ids import BrokerId, TopicName
from anabranch.cluster.cluster import ChangeOverrides, Cluster
from anabranch.groups.group_options import check_group_options
from anabranch.meta.image import Overrides
from anabranch.server.config import DynamicConfig
from anabranch.server.config_client_metrics import ClientMetricsConfig
from anabranch.server.config_resources import ResourceType


async def alter_resource(
    cluster: Cluster,
    config: DynamicConfig,
    resource: tuple[int, str],
    change: ChangeOverrides,
    validate_only: bool,
) -> None:
    """Change the configuration of `resource`, a type and a name, or only say whether that could be done.

    Invalid or InvalidConfig if the result is not legal, UnknownTopic if it is but there is no such topic.
    """
    resource_type, name = resource
    match resource_type:
        case ResourceType.TOPIC:
            await _alter_topic(cluster, config, name, change, validate_only)
        case ResourceType.BROKER:
            await _alter_broker(cluster, config, name, change, validate_only)
        case ResourceType.CLIENT_METRICS:
            await _alter_client_metrics(cluster, name, change, validate_only)
        case ResourceType.GROUP:
            await _alter_group(cluster, config, name, change, validate_only)
        case _:
            raise Invalid(f"Unknown resource type {resource_type}")


def this_broker(config: DynamicConfig, name: str) -> BrokerId:
    """The id that `name` spells, which must be ours: only a broker itself knows what it can be told."""
    own = config.current.node.node_id
    if name == str(own):
        return own
    if not name.removeprefix("-").isdecimal():
        raise Invalid(f"Node id must be an integer, but it is: {name}")
    raise Invalid(f"Unexpected broker id, expected {own}, but received {name}")


async def _alter_topic(
    cluster: Cluster, config: DynamicConfig, name: str, change: ChangeOverrides, validate_only: bool
) -> None:
    if not name:
        raise Invalid("Default topic resources are not allowed.")
    topic_name = TopicName.from_kafka(name)
    topic = cluster.image.topics.get(topic_name)
    config.log_config(change(topic.config if topic else {}))  # before the topic is missed, as in Kafka
    if topic is None:
        raise UnknownTopic(f"The topic '{name}' does not exist.")
    if not validate_only:
        await cluster.alter_topic_config(topic_name, change)


async def _alter_broker(
    cluster: Cluster, config: DynamicConfig, name: str, change: ChangeOverrides, validate_only: bool
) -> None:
    broker_id = this_broker(config, name) if name else None

    def checked(current: Overrides) -> Overrides:
        overrides = change(current)
        config.check(overrides, for_all=broker_id is None)
        return overrides

    image = cluster.image
    checked(image.default_broker_config if broker_id is None else image.broker_configs.get(broker_id, {}))
    if not validate_only:
        await cluster.alter_broker_config(broker_id, checked)


async def _alter_client_metrics(
    cluster: Cluster, name: str, change: ChangeOverrides, validate_only: bool
) -> None:
    if not name:
        raise Invalid("Subscription name can't be empty")

    def checked(current: Overrides) -> Overrides:
        overrides = change(current)
        ClientMetricsConfig.build(overrides)
        return overrides

    checked(cluster.image.client_metrics.get(name, {}))
    if not validate_only:
        await cluster.alter_client_metrics(name, checked)


async def _alter_group(
    cluster: Cluster, config: DynamicConfig, name: str, change: ChangeOverrides, validate_only: bool
) -> None:
    if not name:
        raise Invalid("Default group resources are not allowed.")

    def checked(current: Overrides) -> Overrides:
        overrides = change(current)
        check_group_options(overrides, config.current.groups)
        return overrides

    checked(cluster.image.group_configs.get(name, {}))
    if not validate_only:
        await cluster.alter_group_config(name, checked)
