"""Consumer group change: the group as a decision will leave it, and the records that say so.

    change = Change(group, around, effects, now_ms)
    change.put(member)          it asked for something else, or is new
    change.follow_topics()      topics were made, deleted or grew
    change.settle()             if any of that matters: a new epoch, and a new target
    change.hold(member)         it holds something else

A decision looks at the change, not at the group, which follows when the records are in the log.

`epoch_change` decides when the target is computed.
"""

import logging

from anabranch.base.errors import Invalid
from anabranch.groups.assignors import ASSIGNORS
from anabranch.groups.assignors.subscribers import Subscriber
from anabranch.groups.consumer_group import ConsumerGroup, preferred_assignor, topics_of
from anabranch.groups.consumer_member import Member, Partitions
from anabranch.groups.consumer_records import (
    HELD,
    MEMBER,
    RECORDS,
    REGEX,
    TARGET,
    Resolved,
    epoch_record,
    held_record,
    member_record,
    regex_record,
    target_record,
    tombstone,
)
from anabranch.groups.consumer_regex_match import TopicPattern
from anabranch.groups.effects import Effects
from anabranch.groups.epoch_change import EpochChange
from anabranch.groups.parts import Surroundings, TopicFacts
from anabranch.groups.subscribed_topics import subscribed_topics, topics_hash

log = logging.getLogger(__name__)

NAME = "consumer"

_NOBODY = Member(member_id="")


class Change(EpochChange[Member]):
    name = NAME
    records = RECORDS

    def __init__(self, group: ConsumerGroup, around: Surroundings, effects: Effects, now_ms: int) -> None:
        super().__init__(group, around, effects, now_ms)
        self.group = group
        self._topics_hash = group.topics_hash
        self._resolved = dict(group.resolved)
        self._subscriptions_changed = False

    def put(self, member: Member) -> None:
        """Have `member` ask for what it asks for."""
        known = self.members.get(member.member_id)
        if known is None or not member.asks_as(known):
            self._write(member_record(self.group.group_id, member))
        if not member.subscribes_as(known or _NOBODY):
            self._subscriptions_changed = True
        self.members[member.member_id] = member

    def hold(self, member: Member) -> None:
        """Have `member` hold what it holds."""
        before = self.group.members.get(member.member_id)
        if before is None or not member.holds_as(before):
            self._write(held_record(self.group.group_id, member))
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        self._forget(member_id, (HELD, TARGET, MEMBER))
        self._subscriptions_changed = True

    def replace(self, old: Member, new: Member) -> None:
        """A static member is back under another id, with its predecessor's place in the group."""
        target = self.targets.get(old.member_id, {})
        self.remove(old.member_id)
        group_id = self.group.group_id
        self._write(member_record(group_id, new))
        self._write(target_record(group_id, new.member_id, target))
        self._write(held_record(group_id, new))
        self.members[new.member_id] = new
        self.targets[new.member_id] = target
        self._subscriptions_changed = False

    # --- topics

    def resolve(self, regex: str) -> None:
        """Find the topics of an expression that is new to the group.  Invalid if it is none."""
        if regex and regex not in self._resolved:
            self._resolve(regex)
            self._subscriptions_changed = True

    def follow_topics(self) -> None:
        """Look whether topics have come, gone or grown since the last epoch; not at every heartbeat."""
        group = self.group
        if not self._is_time_to_look_at_topics():
            return
        names = self._around.topics.names()
        if group.resolved and group.names_seen is not names:
            self._effects.after(lambda: _saw_names(group, names))
            for regex in group.resolved:
                self._resolve_again(regex)
        if topics_hash(self._subscribed()) != group.topics_hash:
            self._subscriptions_changed = True

    def _resolve(self, regex: str) -> None:
        found = TopicPattern(regex).matching(self._around.topics.names())
        known = self._resolved.get(regex)
        if known is None or known.topics != found:
            self._resolved[regex] = Resolved(found, 0, self._now_ms)
            self._write(regex_record(self.group.group_id, regex, self._resolved[regex]))

    def _resolve_again(self, regex: str) -> None:
        try:
            self._resolve(regex)
        except Invalid as error:
            # It was fine when there were fewer topics, and its members go on with those.
            log.warning(
                "group %s: its pattern %r was not resolved again, members keep what it gave: %s",
                self.group.group_id,
                regex,
                error,
            )

    def _subscribed(self) -> dict[str, TopicFacts]:
        """The topics that the members are subscribed to and that are there."""
        names = {name for member in self.members.values() for name in topics_of(member, self._resolved)}
        return subscribed_topics(names, self._around.topics)

    # --- epochs

    def settle(self) -> None:
        """Give the group a new epoch if it needs one, and its target if it has none for its epoch."""
        subscribed = self._subscribed() if self._subscriptions_changed else None
        if subscribed is not None:
            self._drop_unused_expressions()
            self.epoch += 1
            self._topics_hash = topics_hash(subscribed)
            self._write(epoch_record(self.group.group_id, self.epoch, self._topics_hash))
        if self.epoch > self.target_epoch and self.members:
            self._maybe_assign(subscribed or self._subscribed())

    def _drop_unused_expressions(self) -> None:
        used = {member.topic_regex for member in self.members.values()}
        for regex in [regex for regex in self._resolved if regex not in used]:
            del self._resolved[regex]
            self._write(tombstone(REGEX, self.group.group_id, regex))

    def _maybe_assign(self, subscribed: dict[str, TopicFacts]) -> None:
        configured_ms = self._around.config_of(self.group.group_id).consumer_assignment_interval_ms
        if self._is_time_to_assign(configured_ms):
            self._assign(subscribed)

    def _assign(self, subscribed: dict[str, TopicFacts]) -> None:
        ids = {name: facts.topic_id for name, facts in subscribed.items()}
        subscribers = {
            member_id: Subscriber(
                frozenset(ids[name] for name in topics_of(member, self._resolved) if name in ids),
                self.targets.get(member_id, {}),
                member.rack_id,
                member.instance_id,
            )
            for member_id, member in self.members.items()
        }
        topics = {facts.topic_id: facts for facts in subscribed.values()}
        default = self._around.config().consumer_assignors[0]
        assign = ASSIGNORS[preferred_assignor(self.members.values(), default)]
        self._set_targets(assign(subscribers, topics))

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, {})


def _saw_names(group: ConsumerGroup, names: frozenset[str]) -> None:
    group.names_seen = names
