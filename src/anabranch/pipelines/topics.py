"""The topics of a pipeline, asked of the broker: are they there, and how many records are waiting in them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from anabranch.base.errors import Exists, Invalid, NotFound, Unavailable
from anabranch.client.cluster import LATEST, Cluster
from anabranch.client.destinations import TopicPartition
from anabranch.client.settings import Settings
from anabranch.pipelines.context import SOURCE, TopicUse

_ANSWER_S = 10.0


def reach(bootstrap: str) -> None:
    """Unavailable if no broker answers."""
    with Cluster(Settings(bootstrap, "anabranch-pipeline", _ANSWER_S)) as cluster:
        cluster.topics()


def check_topics(bootstrap: str, uses: Iterable[TopicUse]) -> None:
    """NotFound names the topics that are not there, and what they are for."""
    absent = missing(bootstrap, uses)
    if absent:
        listed = "; ".join(f"{use.topic}, which {use.role}" for use in absent)
        raise NotFound(f"topics that are not there: {listed}")


def missing(bootstrap: str, uses: Iterable[TopicUse]) -> list[TopicUse]:
    with Cluster(Settings(bootstrap, "anabranch-pipeline", _ANSWER_S)) as cluster:
        there = set(cluster.topics())
    return [use for use in uses if use.topic not in there]


def create_sinks(bootstrap: str, uses: Iterable[TopicUse]) -> list[str]:
    """Makes the topics that are written and are not there, as the broker makes topics by default."""
    names = sorted({use.topic for use in missing(bootstrap, uses) if use.role != SOURCE})
    with Cluster(Settings(bootstrap, "anabranch-pipeline", _ANSWER_S)) as cluster:
        for name in names:
            with suppress(Exists):  # another run was quicker
                _create(cluster, name)
    return names


def _create(cluster: Cluster, name: str) -> None:
    try:
        cluster.create_topic(name)
    except Invalid as error:
        raise Unavailable(f"the topic {name} cannot be made: {error}") from error


def behind_now(
    bootstrap: str, read_to: Mapping[str, Mapping[str, Mapping[str, int]]]
) -> dict[str, int | None]:
    """How many records each flow has not read.  None where a topic is gone."""
    with Cluster(Settings(bootstrap, "anabranch-pipeline", _ANSWER_S)) as cluster:
        there = set(cluster.topics())
        wanted = {topic for topics in read_to.values() for topic in topics} & there
        partitions = cluster.partitions(wanted)
        ends = cluster.offsets_at(dict.fromkeys(partitions, LATEST), committed=True)
    return {flow: _behind(topics, ends, there) for flow, topics in read_to.items()}


def _behind(
    topics: Mapping[str, Mapping[str, int]], ends: Mapping[TopicPartition, int], there: set[str]
) -> int | None:
    if not there.issuperset(topics):
        return None
    return sum(
        max(0, end - topics[one.topic].get(str(one.partition), 0))
        for one, end in ends.items()
        if one.topic in topics
    )
