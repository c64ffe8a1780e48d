"""A commit as it is asked for, and whether whoever asks may commit.

The group knows its members and their epochs.  A member whose epoch is over may still commit if it has kept
everything that it commits since that epoch: its commit was under way while the group went on.  If it lost one
of the partitions it may commit none of them.

A group that does not exist is made by a commit that does not claim to be of a member.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from anabranch.groups.effects import Answer
from anabranch.groups.group import Group
from anabranch.wire.kafka.offset_commit import OffsetColumns
from anabranch.wire.kafka.schema import ErrorCode

BROKERS_RETENTION = -1
"""What a commit says that does not ask for a retention of its own, as only versions 2 to 4 can."""

_FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_EPOCH_IS_OVER = (ErrorCode.stale_member_epoch, ErrorCode.illegal_generation)


class TopicCommit(NamedTuple):
    name: str
    topic_id: UUID | None
    offsets: OffsetColumns


class Commit(NamedTuple):
    """Offsets of partitions that are known to be there, and who commits them."""

    group_id: str
    member_id: str
    epoch: int
    """The generation, the member's epoch, or -1 of a client that assigns itself its partitions."""
    instance_id: str | None
    topics: Sequence[TopicCommit]
    version: int
    retention_ms: int = BROKERS_RETENTION


def may_commit(group: Group | None, request: Commit, *, transactional: bool) -> ErrorCode:
    """`group` is that of the request, if there is one."""
    if group is not None:
        return _as_member(group, request, transactional=transactional)
    if request.epoch < 0:
        return ErrorCode.none
    if transactional or request.version < _FIRST_WITH_GROUP_ID_NOT_FOUND:
        return ErrorCode.illegal_generation
    return ErrorCode.group_id_not_found


def _as_member(group: Group, request: Commit, *, transactional: bool) -> ErrorCode:
    code = group.validate_commit(
        request.member_id,
        request.epoch,
        request.instance_id,
        transactional=transactional,
        version=request.version,
    )
    if code in _EPOCH_IS_OVER and _has_kept_all(group, request):
        return ErrorCode.none
    if transactional and code == ErrorCode.stale_member_epoch:
        return ErrorCode.illegal_generation
    return code


def _has_kept_all(group: Group, request: Commit) -> bool:
    return all(
        topic.topic_id is not None
        and group.may_commit_late(request.member_id, request.epoch, topic.topic_id, index)
        for topic in request.topics
        for index in topic.offsets.partitions
    )


def refused(topics: Sequence[TopicCommit], code: ErrorCode) -> Answer:
    """The answer that gives every partition the same code."""
    return {
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition_index": index, "error_code": code} for index in topic.offsets.partitions
                ],
            }
            for topic in topics
        ]
    }
