"""CreateTopics (19): topics with their partitions, replicas and configuration.

Each topic stands alone; those of one request go to the store together.  A name that comes twice is
refused once.  More partitions in one request than Kafka takes (10,000) refuse all of it.

v5 answers with the number of partitions, the replication factor and the configuration that came of
it; v7 with the topic's id.  With `validate_only` everything is checked and answered, nothing made.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from anabranch.base.errors import AnabranchError, Invalid, InvalidConfig, PolicyViolation
from anabranch.base.ids import TopicName
from anabranch.cluster.topics import MAX_NEW_PARTITIONS, NewTopic
from anabranch.meta.image import Overrides, TopicImage
from anabranch.server.config_entries import topic_entries
from anabranch.server.kafka.deadline import each_within
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api
from anabranch.server.services import Services

_FIRST_WITH_CONFIGS = 5
_CONFIG = ("name", "value", "read_only", "config_source", "is_sensitive")


@api(19, versions=(2, 7))
async def create_topics(request: Any, ctx: RequestContext) -> Answer:
    times = Counter(topic.name for topic in request.topics)
    wanted = {topic.name: topic for topic in request.topics}
    too_many = sum(len(topic.assignments) or topic.num_partitions for topic in request.topics)

    async def create(topic: Any) -> TopicImage:
        if too_many > MAX_NEW_PARTITIONS:
            raise PolicyViolation(f"{too_many} partitions in one request, the limit is {MAX_NEW_PARTITIONS}")
        if times[topic.name] > 1:
            raise Invalid(f"topic '{topic.name}' comes more than once in the request")
        return await ctx.services.cluster.create_topic(_new_topic(topic, ctx), request.validate_only)

    outcomes = await each_within(request.timeout, [create(topic) for topic in wanted.values()])
    configs = _configs(ctx.services) if ctx.version >= _FIRST_WITH_CONFIGS else lambda _: []
    results = zip(wanted, outcomes, strict=True)
    return {"topics": [_result(name, outcome, configs) for name, outcome in results]}


def _new_topic(topic: Any, ctx: RequestContext) -> NewTopic:
    name = TopicName.from_kafka(topic.name)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise InvalidConfig(f"an option cannot be null: {', '.join(nulls)}")
    return NewTopic(
        name,
        topic.num_partitions,
        topic.replication_factor,
        [(chosen.partition_index, chosen.broker_ids) for chosen in topic.assignments],
        {config.name: config.value for config in topic.configs},
        asked_by=ctx.asked_by,
    )


def _result(
    name: str, outcome: TopicImage | AnabranchError, configs: Callable[[Overrides], list[Answer]]
) -> Answer:
    if isinstance(outcome, AnabranchError):
        error = {"error_code": code_of(outcome), "error_message": message_of(outcome)}
        return error | {"name": name, "topic_id": None, "configs": []}
    return {
        "name": name,
        "topic_id": outcome.id,
        "error_message": None,
        "num_partitions": len(outcome.partitions),
        "replication_factor": outcome.replication_factor,
        "configs": configs(outcome.config),
    }


def _configs(services: Services) -> Callable[[Overrides], list[Answer]]:
    """Describes a topic's configuration; topics of one request mostly have the same."""
    known: dict[frozenset[tuple[str, str]], list[Answer]] = {}

    def describe(overrides: Overrides) -> list[Answer]:
        key = frozenset(overrides.items())
        if key not in known:
            entries = topic_entries(services.config.current.layers, overrides)
            known[key] = [{name: getattr(entry, name) for name in _CONFIG} for entry in entries]
        return known[key]

    return describe
