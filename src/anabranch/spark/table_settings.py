"""Table settings: which topics are kept as tables, and where, asked of the brokers as topics' options."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.base.errors import Invalid
from anabranch.client.answers import check
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import ANY
from anabranch.client.requests import DESCRIBE_CONFIGS, Request
from anabranch.log.config_table import DELETE_DELAY, ENABLE, LOCATION, RETENTION, TABLE_OPTIONS
from anabranch.wire.kafka.schema import ErrorCode

_TOPIC = 2
_NOT_FOR_US = {ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed}


class TableSettings(NamedTuple):
    topic: str
    topic_id: str
    location: Path
    retention_ms: int
    delete_delay_ms: int


def enabled_tables(cluster: Cluster, topics: Iterable[str], *, must_know: bool = True) -> list[TableSettings]:
    """Those of `topics` that are kept as tables.  A broker that is not ours has none.

    Invalid if we may not know that of one, since a table that is left out is history that is left out; not
    with `must_know` off, which is for looking at whatever can be seen.
    """
    named = sorted(set(topics))
    if not named:
        return []
    try:
        answer = cluster.send(ANY, Request(DESCRIBE_CONFIGS, _question(named)))
    except Invalid:
        return []  # it does not know the question
    told: dict[str, dict[str, str | None]] = {}
    for one in answer.results:
        if one.error_code == ErrorCode.unknown_topic_or_partition:
            continue
        if one.error_code in _NOT_FOR_US:
            if must_know:
                raise Invalid(
                    f"whether topic {one.resource_name!r} has a table is not for us to know: allow us to "
                    'describe its options, or set the option useTable to "false" to read what the log has'
                )
            continue
        check(one.error_code, f"the options of topic {one.resource_name!r}")
        told[one.resource_name] = {option.name: option.value for option in one.configs}
    enabled = {topic: values for topic, values in told.items() if _value(ENABLE, values)}
    ids = cluster.topic_ids(enabled)
    return [
        TableSettings(
            topic,
            ids[topic],
            Path(_value(LOCATION, values)),
            _value(RETENTION, values),
            _value(DELETE_DELAY, values),
        )
        for topic, values in enabled.items()
    ]


def _question(topics: list[str]) -> dict[str, Any]:
    names = [option.name for option in TABLE_OPTIONS]
    return {
        "resources": [
            {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": names} for topic in topics
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }


def _value(option: Any, told: dict[str, str | None]) -> Any:
    text = told.get(option.name)
    return option.default if text is None else option.parse(text)


def group_of(topic: str) -> str:
    """The group to which the maintainer of a topic's table commits how far it is."""
    return f"anabranch-table-{topic}"
