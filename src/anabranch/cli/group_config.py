"""A group's own settings, over the broker's: session timeouts, where a share group begins, dead letters.

Kafka's admin calls have them, the client library has not.
"""

from collections.abc import Mapping

from anabranch.cli.exchange import (
    DESCRIBE_CONFIGS,
    GROUPS,
    INCREMENTAL_ALTER_CONFIGS,
    Exchange,
    check,
    error_name,
)
from anabranch.cli.failure import CommandError

_GROUP = 32  # the kind of resource
_SET, _DELETE = 0, 1
_SET_ON_GROUP = 8  # the source DYNAMIC_GROUP_CONFIG


def alter_group(exchange: Exchange, name: str, changes: Mapping[str, str | None]) -> None:
    """Change settings of a group, which need not be there yet."""
    configs = [
        {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        for key, value in changes.items()
    ]
    resource = {"resource_type": _GROUP, "resource_name": name, "configs": configs}
    asked = {"resources": [resource], "validate_only": False}
    (answer,) = exchange.to_coordinator(INCREMENTAL_ALTER_CONFIGS, name, asked, GROUPS).responses
    if answer.error_code:
        raise CommandError(answer.error_message or f"group {name}: {error_name(answer.error_code)}")


def group_configs(exchange: Exchange, name: str) -> dict[str, str]:
    """What is set on the group itself."""
    resource = {"resource_type": _GROUP, "resource_name": name, "configuration_keys": None}
    asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    (answer,) = exchange.to_coordinator(DESCRIBE_CONFIGS, name, asked, GROUPS).results
    check(answer.error_code, f"the settings of group {name}")
    return {one.name: one.value for one in answer.configs if one.config_source == _SET_ON_GROUP}
