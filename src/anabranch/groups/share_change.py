"""Share group change: the group as a decision will leave it, and the records that say so.

    change = ShareChange(group, around, effects, now_ms)
    change.put(member)          it asked for something else, or is new
    change.follow_topics()      topics were made, deleted or grew
    change.set_topics(topics)   share partitions were initialised or deleted
    change.settle()             if any of that matters: a new epoch, and a new target
    change.arrive(member)       it has what its target gives it

A decision looks at the change, not at the group, which follows when the records are in the log.

A share partition is assigned only once its state is stored.  Those of subscribed topics that have none yet
are noted as being initialised, and `share_coordinator` does it.
"""

import msgspec

from anabranch.groups.assignors.simple import assign_simply
from anabranch.groups.assignors.subscribers import Subscriber
from anabranch.groups.consumer_member import Partitions
from anabranch.groups.effects import Effects
from anabranch.groups.epoch_change import EpochChange
from anabranch.groups.parts import Surroundings, TopicFacts
from anabranch.groups.share_group import ShareGroup
from anabranch.groups.share_records import (
    CURRENT,
    MEMBER,
    RECORDS,
    TARGET,
    ShareMember,
    ShareTopics,
    TopicShare,
    current_record,
    epoch_record,
    member_record,
    topics_record,
)
from anabranch.groups.subscribed_topics import subscribed_topics, topics_hash

NAME = "share"


class ShareChange(EpochChange[ShareMember]):
    name = NAME
    records = RECORDS

    def __init__(self, group: ShareGroup, around: Surroundings, effects: Effects, now_ms: int) -> None:
        super().__init__(group, around, effects, now_ms)
        self.group = group
        self.topics = group.topics
        self._needs_epoch = False
        self._looks_at_topics = False

    # --- members

    def put(self, member: ShareMember) -> None:
        """Have `member` ask for what it asks for."""
        known = self.members.get(member.member_id)
        if member != known:
            self._write(member_record(self.group.group_id, member))
        if known is None or member.topic_names != known.topic_names:
            self._needs_epoch = self._looks_at_topics = True
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        self._forget(member_id, (CURRENT, TARGET, MEMBER))
        self._needs_epoch = True

    def arrive(self, member: ShareMember) -> ShareMember:
        """`member` with what its target gives it, at the target's epoch; itself if it has been told."""
        if member.epoch == self.target_epoch:
            return member
        arrived = msgspec.structs.replace(
            member,
            epoch=self.target_epoch,
            previous_epoch=member.epoch,
            assigned=self.targets.get(member.member_id, {}),
        )
        self._write(current_record(self.group.group_id, arrived))
        self.members[member.member_id] = arrived
        return arrived

    # --- topics

    def follow_topics(self) -> None:
        """Look whether topics have come, gone or grown since the last epoch; not at every heartbeat."""
        if self._is_time_to_look_at_topics() and topics_hash(self._subscribed()) != self.group.topics_hash:
            self._needs_epoch = self._looks_at_topics = True

    def set_topics(self, topics: ShareTopics) -> None:
        """The group's share partitions are these; those that are initialised can be assigned."""
        if topics != self.topics:
            self._write(topics_record(self.group.group_id, topics))
            self._needs_epoch = self._needs_epoch or topics.initialised != self.topics.initialised
            self.topics = topics

    def _note_uninitialised(self, subscribed: dict[str, TopicFacts]) -> None:
        initialising = dict(self.topics.initialising)
        deleting = dict(self.topics.deleting)
        for name, facts in subscribed.items():
            missing = frozenset(range(facts.num_partitions)) - self._partitions_of(facts)
            if missing:
                noted = initialising.get(facts.topic_id, TopicShare(name, frozenset()))
                initialising[facts.topic_id] = TopicShare(name, noted.partitions | missing)
                deleting.pop(facts.topic_id, None)
        self.set_topics(self.topics._replace(initialising=initialising, deleting=deleting))

    def _partitions_of(self, facts: TopicFacts) -> frozenset[int]:
        """Initialised, or about to be."""
        shares = (self.topics.initialised.get(facts.topic_id), self.topics.initialising.get(facts.topic_id))
        return frozenset().union(*(share.partitions for share in shares if share is not None))

    def _subscribed(self) -> dict[str, TopicFacts]:
        names = {name for member in self.members.values() for name in member.topic_names}
        return subscribed_topics(names, self._around.topics)

    # --- epochs

    def raise_epoch(self) -> None:
        """Give the group a new epoch, whether or not it has members to assign anything to."""
        self.epoch += 1
        topics = topics_hash(self._subscribed())
        self._write(epoch_record(self.group.group_id, self.epoch, topics))

    def settle(self) -> None:
        """Give the group a new epoch if it needs one, and its target if it has none for its epoch."""
        if self._needs_epoch:
            self.raise_epoch()
        if self._looks_at_topics:
            self._note_uninitialised(self._subscribed())
        if self.epoch > self.target_epoch and self.members:
            self._maybe_assign()

    def _maybe_assign(self) -> None:
        configured_ms = self._around.config_of(self.group.group_id).share_assignment_interval_ms
        if self._is_time_to_assign(configured_ms):
            self._assign(self._subscribed())

    def _assign(self, subscribed: dict[str, TopicFacts]) -> None:
        subscribers = {
            member_id: Subscriber(
                frozenset(subscribed[name].topic_id for name in member.topic_names if name in subscribed),
                self.targets.get(member_id, {}),
            )
            for member_id, member in self.members.items()
        }
        self._set_targets(assign_simply(subscribers, self._assignable(subscribed)))

    def _assignable(self, subscribed: dict[str, TopicFacts]) -> Partitions:
        """What is initialised of the topics that are there."""
        initialised = self.topics.initialised
        return {
            facts.topic_id: frozenset(
                partition
                for partition in initialised[facts.topic_id].partitions
                if partition < facts.num_partitions
            )
            for facts in subscribed.values()
            if facts.topic_id in initialised
        }
