"""The real Kafka client that the commands use, and its errors in words.

confluent-kafka (librdkafka) does the talking.  Left alone it retries a dead address in silence for as
long as it is allowed to, so `reach` knocks first; and its errors name codes, so `in_words` turns them
into a CommandError with a next step.
"""

import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

from anabranch.cli.failure import CommandError, Misuse

KNOCK_SECONDS = 3.0
ANSWER_SECONDS = 15.0

_UNREACHABLE = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
)
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_SEE_TOPICS = "`anabranch topic list` shows the topics, `anabranch topic create NAME` makes one"


def admin(bootstrap: str) -> AdminClient:
    reach(bootstrap)
    return AdminClient(_quietly(bootstrap, {}))


def producer(bootstrap: str, options: Mapping[str, Any]) -> Producer:
    reach(bootstrap)
    with failures_in_words(bootstrap):
        return Producer(_quietly(bootstrap, options))


def consumer(bootstrap: str, options: Mapping[str, Any]) -> Consumer:
    reach(bootstrap)
    with failures_in_words(bootstrap):
        return Consumer(_quietly(bootstrap, options))


def _quietly(bootstrap: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "anabranch-cli",
        "log_level": 0,  # what matters comes back as an error
        "error_cb": lambda error: None,
        **options,
    }


def reach(bootstrap: str) -> None:
    """Return once one of the addresses accepts a connection.  CommandError if none does."""
    for address in bootstrap.split(","):
        host, colon, port = address.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise Misuse(f"--bootstrap {bootstrap!r} is not HOST:PORT[,HOST:PORT ...]")
        try:
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
        except OSError:
            continue
        return
    raise _nobody_at(bootstrap)


def _nobody_at(bootstrap: str) -> CommandError:
    return CommandError(
        f"no broker answers at {bootstrap}",
        "start one with `anabranch standalone`, or name another with --bootstrap HOST:PORT",
    )


def in_words(error: KafkaError, bootstrap: str) -> CommandError:
    """What a client's error means to the person at the keyboard."""
    if error.code() in _UNREACHABLE:
        return _nobody_at(bootstrap)
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return CommandError(f"{bootstrap} did not take it in time", "does the broker still run?")
    if error.code() in _NO_TOPIC:
        return CommandError("there is no such topic or partition", _SEE_TOPICS)
    return CommandError(f"{error.str().removeprefix('Broker: ').rstrip('.')} ({error.name()})")


@contextmanager
def failures_in_words(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as exception:
        raise in_words(exception.args[0], bootstrap) from exception


def answer_of(future: "Future[Any]", bootstrap: str) -> Any:
    """What an admin request came back with."""
    try:
        with failures_in_words(bootstrap):
            return future.result(ANSWER_SECONDS)
    except FutureTimeout as error:
        raise CommandError(f"{bootstrap} gave no answer within {ANSWER_SECONDS:g} s") from error


def cluster_metadata(client: AdminClient | Consumer, bootstrap: str) -> ClusterMetadata:
    with failures_in_words(bootstrap):
        return client.list_topics(timeout=ANSWER_SECONDS)


def topic_metadata(client: AdminClient | Consumer, bootstrap: str, topic: str) -> TopicMetadata:
    """`topic` as the cluster knows it, without bringing it into being.  CommandError if it is not there."""
    known = cluster_metadata(client, bootstrap).topics.get(topic)
    if known is None:
        raise CommandError(f"there is no topic {topic!r} at {bootstrap}", _SEE_TOPICS)
    if known.error is not None:
        raise in_words(known.error, bootstrap)
    return known
