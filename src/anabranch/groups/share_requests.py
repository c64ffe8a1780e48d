"""ShareGroupHeartbeat: what may be asked, and in which words a refusal is put.

    epoch   0   join, or join again: the topics must be said
          > 0   a sign of life; what is not said has not changed
           -1   leave

Checks, codes and messages are Kafka's; clients print them.
"""

from typing import NamedTuple

from anabranch.groups.consumer_member import JOINING, LEFT
from anabranch.groups.consumer_requests import LONGEST_ID, Refused
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
    texts = (request.group_id, request.member_id, request.rack_id, request.client_id)
    if any(text is not None and len(text) > LONGEST_ID for text in texts):
        return f"An id is longer than {LONGEST_ID} characters."
    return None


def no_such_group(group_id: str) -> Refused:
    return Refused(ErrorCode.group_id_not_found, f"Share group {group_id} not found.")


def not_a_share_group(group_id: str, *, exists: bool = True) -> Refused:
    what = f"Group {group_id} is not a share group." if exists else f"Group {group_id} not found."
    return Refused(ErrorCode.group_id_not_found, what)


def wrong_epoch(received: int, known: int) -> Refused:
    which = "greater" if received > known else "smaller"
    return Refused(
        ErrorCode.fenced_member_epoch,
        f"The share group member has a {which} member epoch ({received}) than the one known by the "
        f"group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def group_is_full(most: int) -> Refused:
    return Refused(
        ErrorCode.group_max_size_reached,
        f"The share group has reached its maximum capacity of {most} members.",
    )


def not_empty() -> Refused:
    return Refused(ErrorCode.non_empty_group, "The group is not empty.")
