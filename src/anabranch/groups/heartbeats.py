"""Heartbeats of consumer groups and share groups: the refusals and answers they have in common.

    check ─> decide ─┬─> answer
                     └─> Refused, and nothing of what was begun is done

Codes and messages are Kafka's; clients print them.
"""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from anabranch.groups.effects import Answer, Effects, Token
from anabranch.wire.kafka.schema import ErrorCode

_LONGEST_ID = 4096
"""Of a group, a member, an instance, a rack, a client: records take texts of up to 32,767 bytes."""


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


_NOT_WRITTEN = Refused(ErrorCode.coordinator_not_available, "The group could not be written.")


def decided(token: Token, decide: Callable[[Effects], Answer]) -> Effects:
    """What `decide` does to its effects, answered; nothing but the refusal if it raises Refused."""
    effects = Effects()
    try:
        answer = decide(effects)
    except Refused as refused:
        effects = Effects()  # nothing of what was begun is done
        answer = refused.answer
    effects.reply(token, answer)
    effects.reply_if_lost(token, _NOT_WRITTEN.answer)
    return effects


# --- refusals


def too_long(*ids: str | None) -> str | None:
    """What is wrong with ids of which one is."""
    if any(text is not None and len(text) > _LONGEST_ID for text in ids):
        return f"An id is longer than {_LONGEST_ID} characters."
    return None


def not_a_member(group_id: str, member_id: str) -> Refused:
    return Refused(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}.")


def not_such_a_group(protocol: str, group_id: str, *, exists: bool) -> Refused:
    what = f"Group {group_id} is not a {protocol} group." if exists else f"Group {group_id} not found."
    return Refused(ErrorCode.group_id_not_found, what)


def wrong_epoch(protocol: str, received: int, known: int) -> Refused:
    which = "greater" if received > known else "smaller"
    return Refused(
        ErrorCode.fenced_member_epoch,
        f"The {protocol} group member has a {which} member epoch ({received}) than the one known by the "
        f"group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def group_is_full(protocol: str, most: int) -> Refused:
    return Refused(
        ErrorCode.group_max_size_reached,
        f"The {protocol} group has reached its maximum capacity of {most} members.",
    )


# --- answers


def left(member_id: str, epoch: int) -> Answer:
    return {"member_id": member_id, "member_epoch": epoch, "heartbeat_interval": 0}


def assignment(held: Mapping[UUID, Iterable[int]]) -> Answer:
    return {"topic_partitions": [_topic(topic, partitions) for topic, partitions in sorted(held.items())]}


def _topic(topic_id: UUID, partitions: Iterable[int]) -> Answer:
    return {"topic_id": topic_id, "partitions": sorted(partitions)}
