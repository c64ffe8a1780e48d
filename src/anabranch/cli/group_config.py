"""A group's own settings, over the broker's: session timeouts, where a share group begins, dead letters."""

from anabranch.cli.client import GROUP, alter_configs, describe_configs
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import GROUPS, Coordinator

_SET_ON_GROUP = 8  # the source DYNAMIC_GROUP_CONFIG


def alter_group(cluster: Cluster, name: str, changes: dict[str, str | None]) -> None:
    """Change settings of a group, which need not be there yet."""
    alter_configs(cluster, Coordinator(GROUPS, name), GROUP, name, changes)


def group_configs(cluster: Cluster, name: str) -> dict[str, str]:
    """What is set on the group itself."""
    told = describe_configs(cluster, Coordinator(GROUPS, name), GROUP, name)
    return {one.name: one.value for one in told if one.config_source == _SET_ON_GROUP}
