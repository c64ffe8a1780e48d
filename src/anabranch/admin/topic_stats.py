"""Topic statistics: rates, sizes and clients of a topic, or of all its partitions together.

For a partitioned topic numbers are added up, times are the latest, and subscriptions are joined by name.
A request for numbers only (`excludePublishers`, `excludeConsumers`) gets no list of the clients.
"""

from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.parts import one_part, part_names, parts, stored_parts
from anabranch.admin.routes import get, route
from anabranch.admin.subscriptions import Position, offset_of
from anabranch.admin.topics import TOPIC, PartitionedMetadata
from anabranch.partition.places import size_from
from anabranch.topics.registry import AnyTopic
from anabranch.topics.stats import InternalStats, TopicStats
from anabranch.topics.topic_stats import internal_stats_of, stats_of

_EXCLUDING = ("excludePublishers", "excludeConsumers")
_NOT_ADDED = (
    "Timestamp",
    "TimeStamp",
    "LimitSize",
    "LimitTime",
    "AgeSeconds",
    "averageMsgSize",
    "topicEpoch",
)


@get(TOPIC + "/stats", answer=TopicStats, query=_EXCLUDING)
async def stats(call: Call) -> TopicStats:
    """How a topic is doing: rates, sizes, producers, subscriptions."""
    name = call.topic_name
    if part_names(call) != [name]:
        raise Refused(404, f"Topic {name.pulsar} is partitioned; ask for its partitioned-stats")
    return _wanted(call, await call.services.pulsar.topics.open(name))


def _wanted(call: Call, topic: AnyTopic) -> TopicStats:
    stats = stats_of(topic, call.services.pulsar.clock.now_ms())
    if call.flag("excludePublishers"):
        stats = msgspec.structs.replace(stats, publishers=[])
    if call.flag("excludeConsumers"):
        fewer = {
            name: msgspec.structs.replace(each, consumers=[]) for name, each in stats.subscriptions.items()
        }
        stats = msgspec.structs.replace(stats, subscriptions=fewer)
    return stats


@get(TOPIC + "/partitioned-stats", answer=dict[str, Any], query=("perPartition", *_EXCLUDING))
async def partitioned_stats(call: Call) -> dict[str, Any]:
    """How a partitioned topic is doing, its partitions together and, if asked, each for itself."""
    topic = call.topic
    if not topic.is_partitioned:
        raise Refused(404, f"Partitioned Topic {topic.name.pulsar} not found")
    each = {part.full_name: as_json(_wanted(call, part)) for part in await parts(call)}
    whole = together(list(each.values()))
    if whole.get("msgRateIn"):
        whole["averageMsgSize"] = whole["msgThroughputIn"] / whole["msgRateIn"]
    return {
        **whole,
        "metadata": PartitionedMetadata(topic.partition_count, dict(topic.properties) or None),
        "partitions": each if call.flag("perPartition", default=True) else {},
    }


def as_json(stats: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(stats)
    return found


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Several of the same shape as one."""
    whole: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            whole[name] = value if name not in whole else _both(name, whole[name], value)
    return whole


def _both(name: str, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, bool):
        return one or other
    if isinstance(one, int | float):
        return max(one, other) if name.endswith(_NOT_ADDED) else one + other
    if isinstance(one, list):
        return one + other
    if isinstance(one, dict):
        if all(isinstance(item, dict) for item in (*one.values(), *other.values())):
            return {key: _same(one.get(key), other.get(key)) for key in {**one, **other}}
        return {**one, **other}
    return one


def _same(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any]:
    return together([part for part in (one, other) if part is not None])


@get(TOPIC + "/internalStats", answer=InternalStats)
async def internal_stats(call: Call) -> InternalStats:
    """How a topic is stored, and how far its subscriptions have got."""
    return internal_stats_of(await one_part(call, "Internal stats"))


@get(TOPIC + "/partitioned-internalStats", answer=dict[str, Any])
async def partitioned_internal_stats(call: Call) -> dict[str, Any]:
    """How the partitions of a topic are stored."""
    topic = call.topic
    if not topic.is_partitioned:
        raise Refused(404, f"Partitioned Topic {topic.name.pulsar} not found")
    found = {part.full_name: internal_stats_of(part) for part in await stored_parts(call, "Internal stats")}
    return {"metadata": PartitionedMetadata(topic.partition_count), "partitions": found}


@route("PUT", TOPIC + "/backlogSize", body=Position, answer=int)
async def backlog_size(call: Call) -> int:
    """How many bytes are stored from a message on."""
    topic = await one_part(call, "Backlog size")
    return size_from(topic.partition, offset_of(topic, call.body))
