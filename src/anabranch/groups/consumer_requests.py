"""ConsumerGroupHeartbeat: what may be asked, in which words a refusal is put, and how it is answered.

    epoch   0   join, or join again: everything must be said
          > 0   a sign of life; what is not said has not changed
           -1   leave
           -2   leave for a while (static members)

Checks, codes and messages are Kafka's; clients print them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from anabranch.groups.consumer_config import ConsumerConfig
from anabranch.groups.consumer_member import AWAY, JOINING, LEFT, Partitions
from anabranch.groups.effects import Answer
from anabranch.wire.kafka.schema import ErrorCode

_OWN_ID_FROM = 1
LONGEST_ID = 4096
"""Of a group, a member, an instance, a rack, a client: records take texts of up to 32,767 bytes."""


class Heartbeat(NamedTuple):
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    version: int = 1

    @property
    def says_all(self) -> bool:
        """The member does not know where it stands, and is to be told everything."""
        return self.epoch == JOINING or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


class Refused(Exception):
    """The request is answered with a code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def answer(self) -> Answer:
        return {
            "error_code": self.code,
            "error_message": self.message,
            "member_epoch": 0,
            "heartbeat_interval": 0,
        }


def check(request: Heartbeat, config: ConsumerConfig) -> None:
    """Refused if it is wrong whatever the state of the group."""
    wrong = _wrong_texts(request) or _wrong_for_epoch(request)
    if wrong:
        raise Refused(ErrorCode.invalid_request, wrong)
    if request.assignor is not None and request.assignor not in config.consumer_assignors:
        raise Refused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. "
            f"Supported assignors: {', '.join(config.consumer_assignors)}.",
        )


def _wrong_texts(request: Heartbeat) -> str | None:
    if not request.member_id and (request.version >= _OWN_ID_FROM or request.epoch != JOINING):
        return "MemberId can't be empty."
    if not request.group_id:
        return "GroupId can't be empty."
    if request.instance_id == "":
        return "InstanceId can't be empty."
    if request.rack_id == "":
        return "RackId can't be empty."
    texts = (request.group_id, request.member_id, request.instance_id, request.rack_id, request.client_id)
    if any(text is not None and len(text) > LONGEST_ID for text in texts):
        return f"An id is longer than {LONGEST_ID} characters."
    return None


def _wrong_for_epoch(request: Heartbeat) -> str | None:
    if request.epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.owned is None or request.owned:
            return "TopicPartitions must be empty when (re-)joining."
        if request.topic_names is None and request.topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif request.epoch == AWAY:
        if request.instance_id is None:
            return "InstanceId can't be null."
    elif request.epoch < LEFT:
        return "MemberEpoch is invalid."
    return None


def not_a_member(group_id: str, member_id: str) -> Refused:
    return Refused(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}.")


def no_such_instance(instance_id: str) -> Refused:
    return Refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")


def not_a_consumer_group(group_id: str, *, exists: bool) -> Refused:
    what = f"Group {group_id} is not a consumer group." if exists else f"Group {group_id} not found."
    return Refused(ErrorCode.group_id_not_found, what)


def no_such_group(request: Heartbeat) -> Refused:
    what = "Group" if request.epoch < JOINING else "Consumer group"
    return Refused(ErrorCode.group_id_not_found, f"{what} {request.group_id} not found.")


def fenced_by(request: Heartbeat, holder_id: str) -> Refused:
    return Refused(
        ErrorCode.fenced_instance_id,
        f"Static member {request.member_id} with instance id {request.instance_id} "
        f"was fenced by member {holder_id}.",
    )


def unreleased(request: Heartbeat, holder_id: str) -> Refused:
    return Refused(
        ErrorCode.unreleased_instance_id,
        f"Static member {request.member_id} with instance id {request.instance_id} "
        f"cannot join the group because the instance id is owned by {holder_id} member.",
    )


def wrong_epoch(received: int, known: int) -> Refused:
    which = "greater" if received > known else "smaller"
    return Refused(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {which} member epoch ({received}) than the one known by the "
        f"group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def group_is_full(most: int) -> Refused:
    return Refused(
        ErrorCode.group_max_size_reached,
        f"The consumer group has reached its maximum capacity of {most} members.",
    )


def no_expression(text: str, why: object) -> Refused:
    return Refused(
        ErrorCode.invalid_regular_expression,
        f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}.",
    )


def left(member_id: str, epoch: int) -> Answer:
    return {"member_id": member_id, "member_epoch": epoch, "heartbeat_interval": 0}


def assignment(held: Mapping[UUID, Iterable[int]]) -> Answer:
    return {"topic_partitions": [_topic(topic, partitions) for topic, partitions in sorted(held.items())]}


def _topic(topic_id: UUID, partitions: Iterable[int]) -> Answer:
    return {"topic_id": topic_id, "partitions": sorted(partitions)}
