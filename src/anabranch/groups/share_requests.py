"""ShareGroupHeartbeat: what may be asked, and in which words a refusal is put.

    epoch   0   join, or join again: the topics must be said
          > 0   a sign of life; what is not said has not changed
           -1   leave

Checks, codes and messages are Kafka's; clients print them.  Those of consumer groups too are in `heartbeats`.
"""

from typing import NamedTuple

from anabranch.groups.consumer_member import JOINING, LEFT
from anabranch.groups.heartbeats import Refused, not_such_a_group, too_long
from anabranch.wire.kafka.schema import ErrorCode


class ShareHeartbeat(NamedTuple):
    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


def check(request: ShareHeartbeat) -> None:
    """Refused if it is wrong whatever the state of the group."""
    wrong = _wrong(request)
    if wrong:
        raise Refused(ErrorCode.invalid_request, wrong)


def _wrong(request: ShareHeartbeat) -> str | None:
    if not request.member_id:
        return "MemberId can't be empty."
    if not request.group_id:
        return "GroupId can't be empty."
    if request.rack_id == "":
        return "RackId can't be empty."
    if request.epoch == JOINING and not request.topic_names:
        return "SubscribedTopicNames must be set in first request."
    if request.epoch < LEFT:
        return "MemberEpoch is invalid."
    return too_long(request.group_id, request.member_id, request.rack_id, request.client_id)


def no_such_group(group_id: str) -> Refused:
    return Refused(ErrorCode.group_id_not_found, f"Share group {group_id} not found.")


def not_a_share_group(group_id: str, *, exists: bool = True) -> Refused:
    return not_such_a_group("share", group_id, exists=exists)


def not_empty() -> Refused:
    return Refused(ErrorCode.non_empty_group, "The group is not empty.")
