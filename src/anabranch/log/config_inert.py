"""Kafka's topic options that do nothing to a log: tiered storage, which is not here, and throttled replicas.

Kafka has them on every topic, tiered storage or not, so clients find them when they describe a topic and
tools set them when they make one; both must go well.  As on a Kafka whose tiered storage is off, turning it
on for a topic is refused, and the rest is checked, kept, shown and without effect.  The two lists of
throttled replicas are for copying between brokers (`partition/throttling`) and nothing to the log itself.
"""

import re
from collections.abc import Mapping

from anabranch.base.config import Check, Kind, Option, at_least

_REPLICA = re.compile(r"\d+:\d+")


def _not_enabled(value: bool) -> str | None:
    return "Tiered storage is not available, a topic cannot be configured with it" if value else None


def _replicas(items: tuple[str, ...]) -> str | None:
    if items == ("*",) or all(map(_REPLICA.fullmatch, items)):
        return None
    return "Value must be the literal '*' or a list of [partitionId]:[brokerId]"


def _flag(name: str, doc: str, check: Check | None = None) -> Option:
    return Option(name, Kind.BOOLEAN, False, doc, check, dynamic=True)


def _retention(name: str, doc: str) -> Option:
    return Option(name, Kind.LONG, -2, doc, at_least(-2), dynamic=True)


def _throttled(name: str, doc: str) -> Option:
    return Option(name, Kind.LIST, (), doc, _replicas, dynamic=True)


INERT_OPTIONS: Mapping[Option, str | None] = {
    _flag("remote.storage.enable", "Tiered storage, which is not available here.", _not_enabled): None,
    _flag("remote.log.copy.disable", "For tiered storage only: copy no more."): None,
    _flag("remote.log.delete.on.disable", "For tiered storage only: delete what was copied."): None,
    _retention(
        "local.retention.ms", "For tiered storage only: how long the local copy stays."
    ): "log.local.retention.ms",
    _retention(
        "local.retention.bytes", "For tiered storage only: how large the local copy is."
    ): "log.local.retention.bytes",
    _throttled(
        "leader.replication.throttled.replicas", "Replicas that are throttled while they are sent."
    ): None,
    _throttled(
        "follower.replication.throttled.replicas", "Replicas that are throttled while they catch up."
    ): None,
}
"""Each with its broker option's name, if it has one."""
