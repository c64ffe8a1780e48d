"""DeleteTopics (20): by name, and from v6 on by name or by id.

What names the same topic twice, by name, by id or by both, is refused once and the topic stays.  v5
has messages.  With `delete.topic.enable=false` everything is refused, before v3 with the only code
that those versions know.
"""

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID

from anabranch.base.errors import AnabranchError, Invalid, TopicDeletionDisabled, UnknownTopic, UnknownTopicId
from anabranch.base.ids import TopicId, TopicName, id_text
from anabranch.meta.image import ClusterImage, TopicImage
from anabranch.server.kafka.deadline import each_within
from anabranch.server.kafka.errors import code_of, message_of
from anabranch.server.kafka.registry import Answer, RequestContext, api

_FIRST_WITH_IDS = 6
_FIRST_WITH_DISABLED = 3


class _Target(NamedTuple):
    name: str | None
    id: UUID | None

    def found_in(self, image: ClusterImage) -> TopicImage | None:
        if self.id is not None:
            return image.topics_by_id.get(TopicId(self.id))
        try:
            return image.topics.get(TopicName.from_kafka(self.name or ""))
        except Invalid:
            return None


@api(20, versions=(1, 6))
async def delete_topics(request: Any, ctx: RequestContext) -> Answer:
    if ctx.version >= _FIRST_WITH_IDS:
        asked = [_Target(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [_Target(name, None) for name in request.topic_names]
    image = ctx.services.cluster.image
    found = {target: target.found_in(image) for target in asked}
    times = Counter(asked)
    ways = Counter(topic.id for topic in found.values() if topic is not None)

    async def delete(target: _Target) -> TopicImage:
        if not ctx.services.config.current.topics.delete_enable:
            raise _disabled(ctx.version)
        _check(target, times[target])
        topic = found[target]
        if topic is None:
            raise _unknown(target)
        if ways[topic.id] > 1:
            raise Invalid(f"topic '{topic.name.kafka}' comes by its name and by its id")
        named = topic.name if target.id is None else topic.id
        return await ctx.services.cluster.delete_topic(named, ctx.asked_by)

    outcomes = await each_within(request.timeout, [delete(target) for target in found])
    results = zip(found, outcomes, strict=True)
    return {"responses": [_result(target, outcome) for target, outcome in results]}


def _check(target: _Target, times: int) -> None:
    if target.name is not None and target.id is not None:
        raise Invalid("a topic is named by its name or by its id, not by both")
    if target.name is None and target.id is None:
        raise Invalid("a topic has neither a name nor an id")
    if times > 1:
        raise Invalid("a topic comes more than once in the request")


def _unknown(target: _Target) -> AnabranchError:
    if target.id is not None:
        return UnknownTopicId(f"there is no topic with id {id_text(target.id)}")
    return UnknownTopic(f"there is no topic '{target.name}'")


def _disabled(version: int) -> AnabranchError:
    kind = TopicDeletionDisabled if version >= _FIRST_WITH_DISABLED else Invalid
    return kind("topics cannot be deleted here: delete.topic.enable is false")


def _result(target: _Target, outcome: TopicImage | AnabranchError) -> Answer:
    if isinstance(outcome, AnabranchError):
        error = {"error_code": code_of(outcome), "error_message": message_of(outcome)}
        return error | {"name": target.name, "topic_id": target.id}
    return {"name": target.name or outcome.name.kafka, "topic_id": outcome.id, "error_message": None}
