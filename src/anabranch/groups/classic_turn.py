"""Turn of a classic group: one decision about it, while it is being taken."""

from typing import NamedTuple

from anabranch.groups import classic_answers as answers
from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.classic_member import ClassicMember
from anabranch.groups.config import GroupConfig
from anabranch.groups.effects import Answer, Effects, Token
from anabranch.wire.kafka.schema import ErrorCode

NAME = "classic"
"""What the timers of this protocol begin with."""


class Turn(NamedTuple):
    effects: Effects
    now_ms: int
    config: GroupConfig

    def say(self, token: Token, answer: Answer) -> None:
        """Answer `token`; an error whatever becomes of the records, since it promises nothing."""
        self.effects.reply(token, answer)
        if answer["error_code"]:
            self.effects.reply_if_lost(token, answer)

    def watch(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Have the member's session looked at when it ends."""
        member.watched_ms = member.session_ends_ms
        self.effects.at((NAME, "session", group.group_id, member.member_id), member.session_ends_ms)

    def forget(self, group: ClassicGroup, member_id: str) -> None:
        """It is not a member any more; if it waits for something it is told so."""
        token = group.joining.get(member_id)
        if token is not None:
            self.say(token, answers.not_joined(ErrorCode.unknown_member_id))
        token = group.syncing.get(member_id)
        if token is not None:
            self.say(token, answers.not_synced(ErrorCode.unknown_member_id))
        token = group.held.get(member_id)
        if token is not None:
            self.say(token, answers.heard(ErrorCode.unknown_member_id))
        self.effects.cancel((NAME, "session", group.group_id, member_id))
        group.remove(member_id)
