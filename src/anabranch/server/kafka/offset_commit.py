"""OffsetCommit (8): a group writes down how far it has got.

    v2-4   the request may say for how long the offsets are to be kept
    v6     the leader epoch of the last record read is kept too
    v7     static members say who they are
    v9     the member's epoch of the newer group protocol may stand for the generation
    v10    topics by id; one that is not known is UNKNOWN_TOPIC_ID

A commit is usually decided and written at once, and then answered without a task of its own.  One that is
not acknowledged yet waits while the requests behind it are worked on; after `offsets.commit.timeout.ms` it is
COORDINATOR_NOT_AVAILABLE, as Kafka has it, though it may count all the same.

What is not there cannot be committed: such topics and partitions are refused here, and stand first in
the answer; the coordinator decides about the rest.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from uuid import UUID

from anabranch.base.errors import AnabranchError, CoordinatorLoading, CoordinatorNotAvailable, TooLarge
from anabranch.groups.committing import BROKERS_RETENTION, Commit, TopicCommit
from anabranch.groups.coordinator import GroupCoordinator
from anabranch.server.kafka.errors import code_of
from anabranch.server.kafka.group_topics import find_topic
from anabranch.server.kafka.registry import Answer, Reply, RequestContext, ToldAtOnce, Waiting, api
from anabranch.wire.kafka.offset_commit import read_offset_commit, write_offset_commit
from anabranch.wire.kafka.schema import ErrorCode

_LAST_WITH_RETENTION = 4


@api(8, versions=(2, 10), raw=True)
def offset_commit(
    frame: memoryview, at: int, ctx: RequestContext
) -> Reply | Waiting | Coroutine[Any, Any, Reply | Waiting]:
    request = read_offset_commit(frame, at, ctx.version)
    refused, wanted, asked_as = split_commit(request.topics, ctx)
    if not wanted:
        return (write_offset_commit(ctx.version, refused),)
    commit = Commit(
        request.group_id,
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        wanted,
        ctx.version,
        request.retention_time if ctx.version <= _LAST_WITH_RETENTION else BROKERS_RETENTION,
    )

    def told(decided: Answer) -> Reply:
        for topic, name in zip(decided["topics"], asked_as, strict=True):
            topic["name"] = name
        return (write_offset_commit(ctx.version, merged(refused, decided["topics"])),)

    asked = _Asked(commit, told, len(frame))
    try:
        return _decide(asked, ctx.services.groups)
    except (CoordinatorLoading, CoordinatorNotAvailable):
        return _decide_when_loaded(asked, ctx.services.groups)
    except AnabranchError as error:
        return told(_failed(commit, error))


class _Asked(NamedTuple):
    commit: Commit
    told: Callable[[Answer], Reply]
    """What a client is told of a decision."""
    size: int


def _decide(asked: _Asked, groups: GroupCoordinator) -> Reply | Waiting:
    """Over a shard that is loaded (CoordinatorNotAvailable or -Loading if it is not)."""
    commit = asked.commit
    deciding = groups.submit_now(
        commit.group_id, lambda shard, token, now_ms: shard.offsets.commit(commit, token, now_ms)
    )
    return asked.told(deciding.result()) if deciding.done() else _Unacknowledged(asked, deciding)


async def _decide_when_loaded(asked: _Asked, groups: GroupCoordinator) -> Reply | Waiting:
    """Topic and shard are made or read first, and nothing overtakes that."""
    try:
        await groups.ensure_topic()
        await groups.look(asked.commit.group_id)
        return _decide(asked, groups)
    except AnabranchError as error:
        return asked.told(_failed(asked.commit, error))


class _Unacknowledged(ToldAtOnce):
    """The answer to a commit that is in the log, and waits until that holds."""

    __slots__ = ("_asked",)

    def __init__(self, asked: _Asked, deciding: "asyncio.Future[Answer]") -> None:
        super().__init__(asked.size)
        self._asked = asked
        self.answered = deciding.get_loop().create_future()
        deciding.add_done_callback(self._decided)

    def expire(self) -> None:
        """The node stops: the acknowledgement is on its way, and the node waits a moment for its clients."""

    def _decided(self, done: "asyncio.Future[Answer]") -> None:
        if self.answered.done():
            return
        error = done.exception()
        try:
            if isinstance(error, AnabranchError):
                reply = self._asked.told(_failed(self._asked.commit, error))
            else:
                reply = self._asked.told(done.result())
            self.answered.set_result(reply)
        except Exception as mistake:  # noqa: BLE001  whoever waits for the answer must hear of it
            self.answered.set_exception(mistake)
        self._tell()


def split_commit(topics: Any, ctx: RequestContext) -> tuple[list[Answer], list[TopicCommit], list[str]]:
    """What is refused since it is not there, what is left, and what the client calls that."""
    image = ctx.services.cluster.image
    refused: list[Answer] = []
    wanted: list[TopicCommit] = []
    asked_as: list[str] = []
    for asked in topics:
        name = getattr(asked, "name", "")
        topic = find_topic(image, asked, ctx.version)
        if isinstance(topic, ErrorCode):
            unknown = TopicCommit(name, getattr(asked, "topic_id", None), asked.partitions)
            refused.append(failed(unknown, topic))
            continue
        there = asked.partitions
        end = len(topic.partitions)
        if there.partitions and (min(there.partitions) < 0 or max(there.partitions) >= end):
            is_there = [0 <= index < end for index in there.partitions]
            missing = there.only([not found for found in is_there])
            there = there.only(is_there)
            absent = TopicCommit(name, topic.id, missing)
            refused.append(failed(absent, ErrorCode.unknown_topic_or_partition))
        if there.partitions:
            wanted.append(TopicCommit(topic.name.kafka, topic.id, there))
            asked_as.append(name)
    return refused, wanted, asked_as


def merged(refused: list[Answer], decided: list[Answer]) -> list[Answer]:
    """One list, what was refused first; if something was, a topic that was named again stands in it once."""
    if not refused:
        return decided
    by_topic: dict[tuple[str, UUID | None], Answer] = {}
    for topic in (*refused, *decided):
        known = by_topic.setdefault((topic["name"], topic["topic_id"]), topic)
        if known is not topic:
            known["partitions"].extend(topic["partitions"])
    return list(by_topic.values())


def failed(topic: TopicCommit, code: ErrorCode) -> Answer:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [{"partition_index": index, "error_code": code} for index in topic.offsets.partitions],
    }


def _failed(commit: Commit, error: AnabranchError) -> Answer:
    return {"topics": [failed(topic, code_of_commit(error)) for topic in commit.topics]}


def code_of_commit(error: AnabranchError) -> ErrorCode:
    """A commit that does not fit into one batch of the coordinator's log is Kafka's unknown error."""
    return ErrorCode.unknown_server_error if isinstance(error, TooLarge) else code_of(error)
