"""What one group can be told by itself: Kafka's configuration of GROUP resources.

    consumer.session.timeout.ms       group.consumer.session.timeout.ms of this group
    consumer.heartbeat.interval.ms    group.consumer.heartbeat.interval.ms
    consumer.assignment.interval.ms   group.consumer.assignment.interval.ms

An option is called as the broker's that it stands before, without `group.`, and two more options of the
broker say between what it must lie (`group.consumer.min.session.timeout.ms` and so on).  A group need not
exist to be told something.  Members hear of a change with their next heartbeat.

A value that was legal when it was set and lies out of the bounds by now is brought to the nearest within.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from anabranch.base.config import Option, options_of
from anabranch.base.errors import InvalidConfig
from anabranch.groups.config import GroupConfig

_OF_BROKER = "group."


class GroupOption(NamedTuple):
    attribute: str
    """Where GroupConfig has what holds for a group that is told nothing."""
    option: Option
    least: str
    """Where GroupConfig has the bound; and the next one, the upper."""
    most: str


def _declared() -> dict[str, GroupOption]:
    found = {}
    for attribute in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"):
        own = f"consumer_{attribute}"
        broker = options_of(GroupConfig)[own]
        name = broker.name.removeprefix(_OF_BROKER)
        declared = Option(name, broker.kind, broker.default, broker.doc, broker.check, dynamic=True)
        found[name] = GroupOption(own, declared, f"consumer_min_{attribute}", f"consumer_max_{attribute}")
    return found


_BY_NAME = _declared()

GROUP_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {name: declared.option for name, declared in _BY_NAME.items()}
)


def option_of_broker(name: str) -> str:
    """The option of a broker that holds for groups which are not told `name`."""
    return _OF_BROKER + name


def check_group_options(overrides: Mapping[str, str], config: GroupConfig) -> None:
    """InvalidConfig if a group cannot be told that."""
    bounds = options_of(GroupConfig)
    for name, text in overrides.items():
        declared = _BY_NAME.get(name)
        if declared is None:
            raise InvalidConfig(f"Unknown group config name: {name}")
        value = declared.option.parse(text)
        if value < getattr(config, declared.least):
            raise InvalidConfig(f"{name} must be greater than or equal to {bounds[declared.least].name}")
        if value > getattr(config, declared.most):
            raise InvalidConfig(f"{name} must be less than or equal to {bounds[declared.most].name}")


def config_for_group(config: GroupConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """`config` as it holds for a group that is told `overrides`; what cannot be read is passed over."""
    told = {}
    for name, text in overrides.items():
        declared = _BY_NAME.get(name)
        if declared is not None:
            try:
                value = declared.option.parse(text)
            except InvalidConfig:
                continue
            least, most = getattr(config, declared.least), getattr(config, declared.most)
            told[declared.attribute] = min(max(value, least), most)
    return replace(config, **told)
