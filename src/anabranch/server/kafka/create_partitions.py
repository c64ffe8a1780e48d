"""CreatePartitions (37): a topic grows to a number of partitions, placed by us or as the client says.

Each topic stands alone.  A name that comes twice is refused once.
"""

from collections import Counter
from typing import Any

from anabranch.base.errors import AnabranchError, Invalid, InvalidTopicName, UnknownTopic
from anabranch.base.ids import TopicName
from anabranch.meta.image import TopicImage
from anabranch.server.kafka.deadline import each_within
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api


@api(37, versions=(0, 3))
async def create_partitions(request: Any, ctx: RequestContext) -> Answer:
    times = Counter(topic.name for topic in request.topics)
    wanted = {topic.name: topic for topic in request.topics}

    async def grow(topic: Any) -> TopicImage:
        if times[topic.name] > 1:
            raise Invalid(f"topic '{topic.name}' comes more than once in the request")
        try:
            name = TopicName.from_kafka(topic.name)
        except InvalidTopicName as error:  # Kafka looks for it, and there cannot be one
            raise UnknownTopic(str(error)) from error
        assignments = topic.assignments
        replicas = None if assignments is None else [chosen.broker_ids for chosen in assignments]
        return await ctx.services.cluster.add_partitions(name, topic.count, replicas, request.validate_only)

    outcomes = await each_within(request.timeout, [grow(topic) for topic in wanted.values()])
    return {"results": [_result(name, outcome) for name, outcome in zip(wanted, outcomes, strict=True)]}


def _result(name: str, outcome: TopicImage | AnabranchError) -> Answer:
    if isinstance(outcome, AnabranchError):
        return {"name": name, "error_code": code_of(outcome), "error_message": message_of(outcome)}
    return {"name": name, "error_message": None}
