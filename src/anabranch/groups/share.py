"""The share protocol (KIP-932): groups whose members share the records of partitions.

    share_requests     the heartbeat: what may be asked, refusals
    share_heartbeat    what is decided about it
    share_change       the group as it will be, and the records that say so
    share_group        the group as the log says it is;  share_records
    epoch_*            what consumer groups have and write alike;  heartbeats
    share_coordinator  what takes more than one decision: share partitions begin, are reset, end
    share_states       what the group is done with;  share_state, share_state_shard, share_state_records
    assignors/simple   who reads what

A group has one request, the heartbeat.  Its members do not own partitions: several may read one, and who has
which record is the business of the partition's leader (`subscriptions/share_*`).

After a restart a group is where it was, down to each member's epoch, and members have one session to be
heard of.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar
from uuid import UUID

from anabranch.groups import share_heartbeat
from anabranch.groups import share_requests as requests
from anabranch.groups.consumer_describe import described_assignment
from anabranch.groups.consumer_member import JOINING, LEFT
from anabranch.groups.effects import Answer, Effects, Token
from anabranch.groups.epoch_change import ASSIGN
from anabranch.groups.group import Group
from anabranch.groups.heartbeats import decided
from anabranch.groups.parts import Surroundings
from anabranch.groups.share_change import NAME
from anabranch.groups.share_group import ShareGroup
from anabranch.groups.share_heartbeat import ShareTurn
from anabranch.groups.share_records import EPOCH, KEY_VERSIONS, Shares, ShareTopics, TopicShare, read_key
from anabranch.groups.share_requests import ShareHeartbeat

T = TypeVar("T")

_ASSIGNOR = "simple"


class ShareGroups:
    name = NAME
    key_versions = KEY_VERSIONS

    def __init__(self, around: Surroundings, groups: dict[str, Group]) -> None:
        self._around = around
        self._groups = groups

    # --- requests

    def heartbeat(self, request: ShareHeartbeat, token: Token, now_ms: int) -> Effects:
        return decided(token, lambda effects: self._heartbeat(request, effects, now_ms))

    def _heartbeat(self, request: ShareHeartbeat, effects: Effects, now_ms: int) -> Answer:
        requests.check(request)
        turn = self._turn(self._group_for(request), effects, now_ms)
        if request.epoch == LEFT:
            return share_heartbeat.leave(turn, request)
        return share_heartbeat.heartbeat(turn, request)

    def _group_for(self, request: ShareHeartbeat) -> ShareGroup:
        group = self._groups.get(request.group_id)
        if group is None and request.epoch == LEFT:
            raise requests.not_a_share_group(request.group_id, exists=False)
        if group is None and request.epoch != JOINING:
            raise requests.no_such_group(request.group_id)
        return self._new_or_known(request.group_id)

    def _new_or_known(self, group_id: str) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            return ShareGroup(group_id)
        if not isinstance(group, ShareGroup):
            raise requests.not_a_share_group(group_id)
        return group

    def find(self, group_id: str) -> ShareGroup:
        """Refused if there is no such share group."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise requests.not_a_share_group(group_id, exists=group is not None)
        return group

    def describe(self, group_id: str) -> Answer:
        """As ShareGroupDescribe tells it.  Refused if there is no such share group."""
        group = self.find(group_id)
        return {
            "group_id": group_id,
            "group_state": group.state,
            "group_epoch": group.epoch,
            "assignment_epoch": group.target_epoch,
            "assignor_name": _ASSIGNOR,
            "members": [
                {
                    "member_id": member.member_id,
                    "rack_id": member.rack_id,
                    "member_epoch": member.epoch,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "subscribed_topic_names": sorted(member.topic_names),
                    "assignment": described_assignment(member.assigned, self._around.topics),
                }
                for member in group.members.values()
            ],
        }

    # --- share partitions

    def begin(self, group_id: str, shares: Shares, token: Token, now_ms: int) -> Effects:
        """Share partitions are about to begin again, at an `epoch` that is greater than any before.

        The group is made if it is not there.  Refused if it has members, or is no share group.
        """
        group = self._new_or_known(group_id)
        if not group.is_empty:
            raise requests.not_empty()
        effects = Effects()
        change = self._turn(group, effects, now_ms).change()
        change.raise_epoch()
        topics = change.topics
        deleting = _other(topics.deleting, shares)
        initialising = _joined(topics.initialising, shares)
        change.set_topics(topics._replace(initialising=initialising, deleting=deleting))
        effects.reply(token, {"epoch": change.epoch})
        return effects

    def begun(self, group_id: str, shares: Shares, token: Token, now_ms: int) -> Effects:
        """Share partitions are initialised, and can be assigned."""
        effects = Effects()
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            change = self._turn(group, effects, now_ms).change()
            change.set_topics(
                change.topics._replace(
                    initialising=_without(change.topics.initialising, shares),
                    initialised=_joined(change.topics.initialised, shares),
                )
            )
            change.settle()
        effects.reply(token, {})
        return effects

    def end(self, group_id: str, topic_ids: Collection[UUID], token: Token, now_ms: int) -> Effects:
        """What is kept of topics is about to be deleted.  Refused if the group has members, or is none."""
        group = self.find(group_id)
        if not group.is_empty:
            raise requests.not_empty()
        effects = Effects()
        change = self._turn(group, effects, now_ms).change()
        topics = change.topics
        named = {**topics.initialising, **topics.initialised}
        change.set_topics(
            topics._replace(
                initialising=_other(topics.initialising, topic_ids),
                initialised=_other(topics.initialised, topic_ids),
                deleting={
                    **topics.deleting,
                    **{topic_id: named[topic_id].name for topic_id in topic_ids if topic_id in named},
                },
            )
        )
        effects.reply(token, {})
        return effects

    def ended(self, group_id: str, topic_ids: Collection[UUID], token: Token, now_ms: int) -> Effects:
        """Nothing is kept of these topics any more; what begins again since then is another matter."""
        effects = Effects()
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            change = self._turn(group, effects, now_ms).change()
            deleting = _other(change.topics.deleting, topic_ids)
            change.set_topics(change.topics._replace(deleting=deleting))
        effects.reply(token, {})
        return effects

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> Effects:
        """The topics are deleted."""
        effects = Effects()
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                change = self._turn(group, effects, now_ms).change()
                initialising, initialised, deleting = change.topics
                change.set_topics(
                    ShareTopics(
                        _other(initialising, topic_ids),
                        _other(initialised, topic_ids),
                        _other(deleting, topic_ids),
                    )
                )
        effects.each_for_itself()
        return effects

    def _turn(self, group: ShareGroup, effects: Effects, now_ms: int) -> ShareTurn:
        return ShareTurn(group, self._around, effects, now_ms)

    # --- records and timers

    def replay(self, key: bytes, value: bytes | None) -> None:
        what = read_key(key)
        group = self._groups.get(what.group_id)
        if value is None:
            if isinstance(group, ShareGroup):
                if what.kind == EPOCH:
                    del self._groups[what.group_id]
                else:
                    group.replay(what, None)
        else:
            if not isinstance(group, ShareGroup):
                group = self._groups[what.group_id] = ShareGroup(what.group_id)
            group.replay(what, value)

    def loaded(self, effects: Effects, now_ms: int) -> None:
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                turn = self._turn(group, effects, now_ms)
                for member_id in group.members:
                    turn.watch(member_id)
                if group.target_epoch < group.epoch:
                    effects.at((NAME, ASSIGN, group.group_id), now_ms)

    def timeout(self, timer: Hashable, now_ms: int) -> Effects:
        assert isinstance(timer, tuple)
        effects = Effects()
        _, what, group_id, member_id = (*timer, "")[:4]
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            turn = self._turn(group, effects, now_ms)
            if what == ASSIGN:
                turn.change().settle()
            elif member_id in group.members:
                share_heartbeat.remove(turn, member_id)
        return effects


def _joined(shares: Shares, more: Shares) -> Shares:
    joined = dict(shares)
    for topic, share in more.items():
        known = joined.get(topic, share)
        joined[topic] = TopicShare(share.name, known.partitions | share.partitions)
    return joined


def _without(shares: Shares, done: Shares) -> Shares:
    left: dict[UUID, TopicShare] = {}
    for topic, share in shares.items():
        partitions = share.partitions - done[topic].partitions if topic in done else share.partitions
        if partitions:
            left[topic] = TopicShare(share.name, partitions)
    return left


def _other(by_topic: Mapping[UUID, T], topic_ids: Collection[UUID]) -> dict[UUID, T]:
    return {topic: what for topic, what in by_topic.items() if topic not in topic_ids}
