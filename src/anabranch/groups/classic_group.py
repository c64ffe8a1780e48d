"""A classic group: its members, the generation they are in, and who waits for what.

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable
      ^            │  ^ ^                    │                  │
      └────────────┘  │ └────────────────────┘                  │
                      └─────────────────────────────────────────┘        any ──> Dead: it was deleted

    PreparingRebalance    members are to join again; those that have wait in `joining`
    CompletingRebalance   the leader has been told who is in and works out who gets what; members wait
                          in `syncing`, `unsynced` are those that have not asked yet
    Stable                everybody has an assignment

What is written to the log (on Stable and on Empty) is `restore`d, live and after a restart alike.  The
rest is forgotten by a restart: members of an unfinished generation then find themselves unknown, or in
the one before, and join again.

Invariants, checked by tests/model/test_classic_groups.py:
  * every member knows a protocol that all others know, so there is always one to select;
  * the leader is a member, if there are any;
  * whoever waits in `joining` or `syncing`, and whoever is `unsynced`, is a member; whoever was promised
    an id and has not joined with it is not.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from uuid import UUID

from anabranch.groups.classic_member import (
    AssignmentProtocol,
    ClassicMember,
    restored_member,
    subscribed_topics,
)
from anabranch.groups.effects import Answer, KeyValue, Token
from anabranch.groups.group import GroupKind
from anabranch.groups.records import GroupMetadata, write_group, write_group_key
from anabranch.wire.kafka.schema import ErrorCode

CONSUMER = "consumer"
"""The protocol type of consumers, whose metadata can be looked into."""


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_MAY_FOLLOW: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset((State.PREPARING, State.DEAD)),
    State.PREPARING: frozenset((State.EMPTY, State.COMPLETING, State.DEAD)),
    State.COMPLETING: frozenset((State.PREPARING, State.STABLE, State.DEAD)),
    State.STABLE: frozenset((State.PREPARING, State.DEAD)),
    State.DEAD: frozenset(),
}


class ClassicGroup:
    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.since_ms = -1
        self.protocol_type = ""
        self.generation = 0
        self.protocol: str | None = None
        self.leader: str | None = None
        self.topics: frozenset[str] | None = None
        """What the members read; None if that is not known."""
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}
        """The member by its instance id."""
        self.promised: set[str] = set()
        """Ids that were given out and not joined with yet."""
        self.joining: dict[str, Token] = {}
        self.syncing: dict[str, Token] = {}
        self.unsynced: set[str] = set()
        self.held: dict[str, Token] = {}
        """Heartbeats that are answered when there is news, or after a while."""
        self.news_ms: int | None = None
        """When those are told of the rebalance that has begun."""
        self.news_by_ms = 0
        """The latest time for that."""
        self.gathering_until_ms: int | None = None
        """In a group's first rebalance: until when it may be held open for more members."""
        self.has_grown = False
        """Somebody joined since the first rebalance was last looked at."""
        self._known_by: Counter[str] = Counter()

    # --- what offsets and listings see

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        return self.protocol_type == CONSUMER if self.topics is None else topic in self.topics

    def validate_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool, version: int
    ) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if epoch < 0 and self.is_empty:
            return ErrorCode.none
        if epoch >= 0 or member_id or instance_id is not None:
            code = self.check_member(member_id, instance_id)
            if code:
                return code
            if epoch != self.generation:
                return ErrorCode.illegal_generation
        elif not transactional:
            return ErrorCode.unknown_member_id
        if not transactional and self.state is State.COMPLETING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def may_commit_late(self, member_id: str, epoch: int, topic_id: UUID, partition: int) -> bool:
        """Nobody keeps anything: each generation assigns every partition again."""
        return False

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.group_id_not_found if self.state is State.DEAD else ErrorCode.none

    def heard_of(self, member_id: str, now_ms: int) -> None:
        member = self.members.get(member_id)
        if member is not None and not member.is_new:
            member.heard_of(now_ms)

    def ages_from(self, committed_ms: int) -> int | None:
        if not self.protocol_type:
            return committed_ms
        if self.is_empty:
            return committed_ms if self.since_ms < 0 else self.since_ms
        if self.protocol_type == CONSUMER and self.topics is not None and self.state is State.STABLE:
            return committed_ms
        return None

    def tombstones(self) -> list[KeyValue]:
        return [KeyValue(write_group_key(self.group_id), None)]

    def describe(self) -> Answer:
        """As DescribeGroups tells it: the protocol and what it was told only of a finished generation."""
        stable = self.state is State.STABLE
        return {
            "group_id": self.group_id,
            "group_state": self.state,
            "protocol_type": self.protocol_type,
            "protocol_data": (self.protocol or "") if stable else "",
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "member_metadata": member.metadata(self.protocol) if stable else b"",
                    "member_assignment": member.assignment,
                }
                for member in self.members.values()
            ],
        }

    # --- members

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is it a member, and still the one that bears its instance id?"""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id
            if holder != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def can_take(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Has a member with these protocols one in common with all others?"""
        names = set(protocols)
        if self.is_empty:
            return bool(protocol_type and names)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._known_by[n] == everybody for n in names)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._known_by.update({protocol.name for protocol in member.protocols})
        self.promised.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """It is no member any more, and was promised nothing."""
        self.promised.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._known_by.subtract({protocol.name for protocol in member.protocols})
        if member.instance_id is not None:
            del self.static[member.instance_id]
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        self.held.pop(member_id, None)
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old_id: str, successor: ClassicMember) -> None:
        """A static member has come back under another id; it keeps its place, a leader its office."""
        led = self.leader == old_id
        self.remove(old_id)
        self.add(successor, self.protocol_type)
        if led:
            self.leader = successor.member_id

    def update(
        self,
        member: ClassicMember,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[AssignmentProtocol, ...],
    ) -> None:
        self._known_by.subtract({protocol.name for protocol in member.protocols})
        member.agrees_on(session_timeout_ms, rebalance_timeout_ms, protocols)
        member.is_restored = False
        self._known_by.update({protocol.name for protocol in member.protocols})

    def put_in_place(self, member: ClassicMember) -> None:
        """Have `member` itself where another of its id was restored from the log."""
        self.replace(member.member_id, member)

    # --- rebalancing

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def have_all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.promised

    @property
    def may_rebalance(self) -> bool:
        return State.PREPARING in _MAY_FOLLOW[self.state]

    def go(self, state: State, now_ms: int) -> None:
        assert state in _MAY_FOLLOW[self.state], (self.group_id, self.state, state)
        self.state = state
        self.since_ms = now_ms

    def elect_leader(self) -> bool:
        """See to it that the leader is one who has joined.  False if nobody has."""
        if self.leader not in self.joining:
            self.leader = next(iter(self.joining), self.leader)
        return self.leader in self.joining

    def select_protocol(self) -> str:
        """What most members like best of what all of them know; of equals the first that was named."""
        everybody = len(self.members)
        votes = Counter(
            next(protocol.name for protocol in member.protocols if self._known_by[protocol.name] == everybody)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.gathering_until_ms = None
        self.has_grown = False
        self.protocol = self.select_protocol() if self.members else None
        self._look_at_topics()
        self.go(State.COMPLETING if self.members else State.EMPTY, now_ms)

    # --- what is written

    def record(self, assignments: dict[str, bytes], now_ms: int) -> KeyValue:
        """The group with these assignments."""
        return self.record_of(self.members.values(), self.leader, assignments, now_ms)

    def record_of(
        self,
        members: Iterable[ClassicMember],
        leader: str | None,
        assignments: dict[str, bytes],
        now_ms: int,
    ) -> KeyValue:
        stored = tuple(m.stored(self.protocol, assignments.get(m.member_id, b"")) for m in members)
        value = GroupMetadata(self.protocol_type, self.generation, self.protocol, leader, now_ms, stored)
        return KeyValue(write_group_key(self.group_id), write_group(value))

    def restore(self, stored: GroupMetadata) -> None:
        """Be what was written."""
        self.protocol_type = stored.protocol_type
        self.generation = stored.generation
        self.protocol = stored.protocol
        self.since_ms = stored.state_ms
        for gone in set(self.members) - {member.member_id for member in stored.members}:
            self.remove(gone)
        for written in stored.members:
            member = self.members.get(written.member_id)
            if member is None:
                self.add(restored_member(written, stored.protocol), stored.protocol_type)
            else:
                member.assignment = written.assignment
        if stored.leader in self.members:
            self.leader = stored.leader
        self.state = State.STABLE if self.members else State.EMPTY
        self._look_at_topics()

    def _look_at_topics(self) -> None:
        self.topics = None
        if self.protocol_type == CONSUMER:
            read = [subscribed_topics(member.metadata(self.protocol)) for member in self.members.values()]
            known = [topics for topics in read if topics is not None]
            if len(known) == len(read):
                self.topics = frozenset().union(*known)
