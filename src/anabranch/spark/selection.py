"""Partition selection: which ones a query reads, by subscribe, subscribePattern or assign.

subscribe          "orders,clicks"                  all partitions of these topics, new ones as they come
subscribePattern   "orders-.*"                      all topics of such names, as Java would match them: whole
assign             {"orders": [0, 1]}               these and no others
"""

import json
import re
from typing import NamedTuple

from anabranch.base.errors import Invalid
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.spark.options import Options


class Selection(NamedTuple):
    """Exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """The partitions as of now.  UnknownTopic if a topic that is named is not there."""
        if self.pattern:
            matching = re.compile(self.pattern)
            return cluster.partitions(topic for topic in cluster.topics() if matching.fullmatch(topic))
        if self.topics:
            return cluster.partitions(self.topics)
        there = set(cluster.partitions({one.topic for one in self.assigned}))
        if missing := [one for one in self.assigned if one not in there]:
            raise Invalid(f"assign names {missing[0]}, which is not there")
        return sorted(self.assigned)


def selection_of(options: Options) -> Selection:
    name, value = options.one_of("subscribe", "subscribePattern", "assign")
    if name == "subscribe":
        topics = tuple(topic.strip() for topic in value.split(",") if topic.strip())
        if not topics:
            raise Invalid("subscribe names no topic")
        return Selection(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise Invalid(f"subscribePattern is {value!r}, which is no pattern: {error}") from None
        if not value:
            raise Invalid("subscribePattern is empty")
        return Selection(pattern=value)
    return Selection(assigned=_assigned(value))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    complaint = Invalid(f'assign is {text!r}, not JSON such as {{"topic": [0, 1]}}')
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        raise complaint from None
    if not isinstance(document, dict) or not document:
        raise complaint
    found = []
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise complaint
        found += [TopicPartition(topic, one) for one in partitions]
    return tuple(sorted(set(found)))
