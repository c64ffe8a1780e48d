"""ConsumerGroupHeartbeat: what may be asked, and in which words a refusal is put.

    epoch   0   join, or join again: everything must be said
          > 0   a sign of life; what is not said has not changed
           -1   leave
           -2   leave for a while (static members)

Checks, codes and messages are Kafka's; clients print them.  Those of share groups too are in `heartbeats`.
"""

from typing import NamedTuple

from anabranch.groups.consumer_config import ConsumerConfig
from anabranch.groups.consumer_member import AWAY, JOINING, LEFT, Partitions
from anabranch.groups.heartbeats import Refused, not_such_a_group, too_long
from anabranch.wire.kafka.schema import ErrorCode

_OWN_ID_FROM = 1


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
    return too_long(
        request.group_id, request.member_id, request.instance_id, request.rack_id, request.client_id
    )


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


def no_such_instance(instance_id: str) -> Refused:
    return Refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")


def not_a_consumer_group(group_id: str, *, exists: bool) -> Refused:
    return not_such_a_group("consumer", group_id, exists=exists)


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


def no_expression(text: str, why: object) -> Refused:
    return Refused(
        ErrorCode.invalid_regular_expression,
        f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}.",
    )
