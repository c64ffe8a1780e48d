"""Turn of a consumer group: one decision about it, while it is being taken."""

from typing import NamedTuple

from anabranch.groups.consumer_change import NAME, Change
from anabranch.groups.consumer_group import ConsumerGroup
from anabranch.groups.consumer_member import Member, MemberState, Partitions
from anabranch.groups.consumer_reconcile import reconcile
from anabranch.groups.effects import Effects
from anabranch.groups.group import Group
from anabranch.groups.parts import Surroundings

SESSION, REBALANCE, REJOIN, SYNC = "session", "rebalance", "rejoin", "sync"
"""What a member is given time for: to be heard of, to give up partitions, and if it speaks the classic
protocol to join again and to ask for its assignment."""

MEMBER_TIMERS = (SESSION, REBALANCE, REJOIN, SYNC)


class Turn(NamedTuple):
    group: ConsumerGroup
    groups: dict[str, Group]
    around: Surroundings
    effects: Effects
    now_ms: int

    def change(self) -> Change:
        return Change(self.group, self.around, self.effects, self.now_ms)

    def timer(self, what: str, member_id: str) -> tuple[str, ...]:
        return (NAME, what, self.group.group_id, member_id)

    def watch(self, member: Member) -> None:
        """Have the member's session end unless it is heard of again."""
        timeout_ms = self.around.config_of(self.group.group_id).consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.effects.at(self.timer(SESSION, member.member_id), self.now_ms + timeout_ms)

    def forget(self, member_id: str) -> None:
        """No timer of a member that is gone need run."""
        for what in MEMBER_TIMERS:
            self.effects.cancel(self.timer(what, member_id))

    def settle(self, change: Change, member: Member, owned: Partitions | None) -> Member:
        """Bring what the member holds as near to its target as can be; giving up has a deadline."""
        target = change.targets.get(member.member_id, {})
        holds = reconcile(member, target, change.target_epoch, owned, self.group.is_free)
        change.hold(holds)
        if holds is not member:
            timer = self.timer(REBALANCE, member.member_id)
            if holds.state is MemberState.UNREVOKED and not member.is_classic:
                self.effects.at(timer, self.now_ms + holds.rebalance_timeout_ms)
            else:
                self.effects.cancel(timer)
        return holds
