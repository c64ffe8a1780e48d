"""The cluster that commands talk to, and errors of it in words.

A dead address would be tried for as long as a request may take, so `connected` tries it first.  What fails
later ends the command as a CommandError with a next step.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anabranch.base.errors import AnabranchError, Invalid, Unavailable, UnknownTopic
from anabranch.cli.failure import CommandError, Misuse
from anabranch.client.answers import check_told
from anabranch.client.cluster import Cluster
from anabranch.client.destinations import TopicPartition, addresses
from anabranch.client.requests import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, Request
from anabranch.client.settings import Settings

KNOCK_S = 3.0
ANSWER_S = 15.0

_SEE_TOPICS = "`anabranch topic list` shows the topics, `anabranch topic create NAME` makes one"


@contextmanager
def connected(bootstrap: str, settings: Settings | None = None) -> Iterator[Cluster]:
    """The cluster at `bootstrap`.  Its errors end the command."""
    reach(bootstrap)
    try:
        with Cluster(settings or Settings(bootstrap, "anabranch-cli", ANSWER_S)) as cluster:
            yield cluster
    except AnabranchError as error:
        raise in_words(error, bootstrap) from error


def reach(bootstrap: str) -> None:
    """Return once one of the addresses accepts a connection.  CommandError if none does."""
    try:
        known = addresses(bootstrap)
    except Invalid as error:
        raise Misuse(f"--bootstrap {bootstrap!r} is not HOST:PORT[,HOST:PORT ...]") from error
    for address in known:
        try:
            socket.create_connection(address, KNOCK_S).close()
        except OSError:
            continue
        return
    raise CommandError(
        f"no broker answers at {bootstrap}",
        "start one with `anabranch standalone`, or name another with --bootstrap HOST:PORT",
    )


def in_words(error: AnabranchError, bootstrap: str) -> CommandError:
    """What a client's error means to the person at the keyboard."""
    if isinstance(error, Unavailable):
        return CommandError(f"{bootstrap} did not do it in time: {error}", "does the broker still run?")
    if isinstance(error, UnknownTopic):
        return CommandError(f"there is no such topic or partition: {error}", _SEE_TOPICS)
    return CommandError(str(error))


def partitions_of(cluster: Cluster, topic: str) -> list[int]:
    """The partitions of `topic`, without bringing it into being.  CommandError if it is not there."""
    try:
        return [one.partition for one in cluster.partitions([topic])]
    except UnknownTopic as error:
        place = cluster.settings.bootstrap
        raise CommandError(f"there is no topic {topic!r} at {place}", _SEE_TOPICS) from error


def partitions_there(cluster: Cluster) -> set[TopicPartition]:
    """All partitions of all topics, internal ones too."""
    return {
        TopicPartition(topic.name, one.partition_index)
        for topic in cluster.metadata(None).topics
        for one in topic.partitions
    }


# --- settings of topics, brokers and groups

TOPIC, BROKER, GROUP = 2, 4, 32
_SET, _DELETE = 0, 1


def describe_configs(cluster: Cluster, to: Any, kind: int, name: str) -> list[Any]:
    """The settings of a topic, a broker or a group, of which `to` knows."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    (result,) = cluster.send(to, Request(DESCRIBE_CONFIGS, values)).results
    check_told(result.error_code, result.error_message, f"the settings of {name}")
    return list(result.configs)


def alter_configs(cluster: Cluster, to: Any, kind: int, name: str, changes: dict[str, str | None]) -> None:
    """Change settings; None is back to the default."""
    configs = [
        {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        for key, value in changes.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    values = {"resources": [resource], "validate_only": False}
    (result,) = cluster.send(to, Request(INCREMENTAL_ALTER_CONFIGS, values)).responses
    check_told(result.error_code, result.error_message, f"the settings of {name}")
