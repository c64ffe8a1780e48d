"""Answers to members of classic groups, under the names of the newest version of each."""

from collections.abc import Iterable

from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.classic_member import ClassicMember
from anabranch.groups.effects import Answer
from anabranch.wire.kafka.schema import ErrorCode

UNKNOWN_MEMBER = ""


def joined(
    group: ClassicGroup, member_id: str, *, is_told_all: bool, skip_assignment: bool = False
) -> Answer:
    """The group's generation.  A leader is told who is in, to work out who gets what."""
    return {
        "error_code": ErrorCode.none,
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "leader": group.leader or "",
        "skip_assignment": skip_assignment,
        "member_id": member_id,
        "members": members_told(group.members.values(), group.protocol) if is_told_all else [],
    }


def members_told(members: Iterable[ClassicMember], protocol: str | None) -> list[Answer]:
    """Who is in, as a leader needs to know it."""
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "metadata": member.metadata(protocol),
        }
        for member in members
    ]


def not_joined(code: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> Answer:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


def synced(group: ClassicGroup, assignment: bytes) -> Answer:
    return {
        "error_code": ErrorCode.none,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "assignment": assignment,
    }


def not_synced(code: ErrorCode) -> Answer:
    return {"error_code": code, "protocol_type": None, "protocol_name": None, "assignment": b""}


def left(member_id: str, instance_id: str | None, code: ErrorCode) -> Answer:
    return {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}


def heard(code: ErrorCode) -> Answer:
    return {"error_code": code}
