"""Log lines of changes: topics made, grown and deleted, configuration and policies, one INFO line each.

    orders: created with 3 partitions of 1 replica, id Tzk..., asked for by client 'app' at 127.0.0.1:50122
    orders: configuration changed: retention.ms=1000 (was 5000), cleanup.policy unset

The broker that makes a change says so, once it is in the metadata store; what follows from it is told by
whoever does it.  Options of brokers are named without their values, which may be secrets.
"""

from collections.abc import Iterator, Mapping

import msgspec

from anabranch.base.ids import TopicId, id_text
from anabranch.meta.documents import TopicDocument
from anabranch.meta.policies import NO_TOPIC_POLICIES


def made(document: TopicDocument, asked_by: str) -> str:
    partitions, replicas = len(document.replicas), len(document.replicas[0])
    line = f"created with {_number(partitions, 'partition')} of {_number(replicas, 'replica')}, "
    return line + f"id {id_text(document.id)}{_for(asked_by)}"


def deleted(id: TopicId, partitions: int, asked_by: str) -> str:
    return f"deleted with its {_number(partitions, 'partition')}, id {id_text(id)}{_for(asked_by)}"


def topic_changes(before: TopicDocument, after: TopicDocument) -> Iterator[str]:
    """What there is to tell of a change; nothing of epochs, which producers bring about."""
    if len(after.replicas) != len(before.replicas):
        yield f"grown from {len(before.replicas)} to {len(after.replicas)} partitions"
    if after.config != before.config:
        yield f"configuration changed: {overrides(before.config, after.config)}"
    if after.policies != before.policies:
        changed = fields(before.policies or NO_TOPIC_POLICIES, after.policies or NO_TOPIC_POLICIES)
        yield f"policies changed: {changed}"
    if after.properties != before.properties:
        yield f"properties changed: {overrides(before.properties, after.properties)}"
    for index in after.terminated.keys() - before.terminated.keys():
        yield f"partition {index} terminated at offset {after.terminated[index]}, it takes no more messages"


def overrides(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """`retention.ms=1000 (was 5000), cleanup.policy unset`."""
    told = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            told.append(f"{name} unset")
        elif name not in before:
            told.append(f"{name}={after[name]}")
        elif before[name] != after[name]:
            told.append(f"{name}={after[name]} (was {before[name]})")
    return ", ".join(told)


def names(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The options that differ, without their values."""
    changed = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(sorted(changed))


def fields(before: msgspec.Struct, after: msgspec.Struct) -> str:
    """The fields of a struct that differ, as they are now."""
    told = ((name, getattr(after, name)) for name in after.__struct_fields__)
    return ", ".join(f"{name}={value}" for name, value in told if value != getattr(before, name))


def _for(asked_by: str) -> str:
    return f", asked for by {asked_by}" if asked_by else ""


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
