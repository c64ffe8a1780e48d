"""Group options: Kafka's configuration of GROUP resources, one group at a time.

    consumer.session.timeout.ms       group.consumer.session.timeout.ms of this group
    share.heartbeat.interval.ms       group.share.heartbeat.interval.ms
    share.auto.offset.reset           none: only groups have it

An option has the name of the broker's that it overrides, without `group.`, and two more options of the
broker bound it (`group.consumer.min.session.timeout.ms` and so on).  A group need not exist to have options,
and may have a consumer group's and a share group's alike.  Members hear of a change in their next heartbeat.

A value that was within the bounds when it was set, and is no more, counts as the nearest bound.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from anabranch.base.config import Option, at_least, options_of
from anabranch.base.errors import InvalidConfig
from anabranch.groups.config import GroupConfig
from anabranch.groups.share_config import OWN_OPTIONS
from anabranch.groups.share_dead_letter_config import DEAD_LETTER_OPTIONS

_OF_BROKER = "group."


class GroupOption(NamedTuple):
    attribute: str
    """Where GroupConfig has what holds for a group that is told nothing."""
    option: Option
    least: str | None = None
    """Where GroupConfig has the bound, if there is one; and the next one, the upper."""
    most: str | None = None


_BOUNDED = {
    "consumer": {"session_timeout_ms": 1, "heartbeat_interval_ms": 1, "assignment_interval_ms": 0},
    "share": {
        "session_timeout_ms": 1,
        "heartbeat_interval_ms": 1,
        "assignment_interval_ms": 0,
        "record_lock_duration_ms": 1_000,
        "delivery_count_limit": 2,
        "partition_max_record_locks": 100,
    },
}
"""By kind of group, what it can be told within the broker's bounds, and the least that is ever legal."""


def _declared() -> dict[str, GroupOption]:
    found = {}
    for kind, attributes in _BOUNDED.items():
        for attribute, least in attributes.items():
            own = f"{kind}_{attribute}"
            broker = options_of(GroupConfig)[own]
            name = broker.name.removeprefix(_OF_BROKER)
            declared = Option(name, broker.kind, broker.default, broker.doc, at_least(least), dynamic=True)
            found[name] = GroupOption(own, declared, f"{kind}_min_{attribute}", f"{kind}_max_{attribute}")
    for own, declared in (OWN_OPTIONS | DEAD_LETTER_OPTIONS).items():
        found[declared.name] = GroupOption(own, declared)
    return found


_BY_NAME = _declared()

GROUP_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {name: declared.option for name, declared in _BY_NAME.items()}
)


def option_of_broker(name: str) -> str | None:
    """The option of a broker that holds for groups which are not told `name`, if there is one."""
    return None if _BY_NAME[name].least is None else _OF_BROKER + name


def check_group_options(overrides: Mapping[str, str], config: GroupConfig) -> None:
    """InvalidConfig if a group cannot be told that."""
    bounds = options_of(GroupConfig)
    for name, text in overrides.items():
        declared = _BY_NAME.get(name)
        if declared is None:
            raise InvalidConfig(f"Unknown group config name: {name}")
        value = declared.option.parse(text)
        if declared.least is None or declared.most is None:
            continue
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
            if declared.least is not None and declared.most is not None:
                value = min(max(value, getattr(config, declared.least)), getattr(config, declared.most))
            told[declared.attribute] = value
    return replace(config, **told)
