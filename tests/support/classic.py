"""Classic groups on a log of their own, without an event loop: time is moved, timers come in order.

    groups = Groups()
    first = groups.join("a")                    a request that waits, or has its answer: first.answer
    groups.pass_ms(3000)
    groups.sync("a", first, {first.id: b"all"})

Effects are carried out as `groups/runtime.py` does it.  `losing` makes writes fail; `restart` reads the log
back.
"""

from random import Random
from typing import Any
from uuid import UUID

from anabranch.groups.classic import ClassicGroups
from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.classic_join import Joining
from anabranch.groups.classic_member import AssignmentProtocol
from anabranch.groups.classic_sync import Identity, Syncing
from anabranch.groups.config import GroupConfig
from anabranch.groups.effects import Answer, Effects
from anabranch.groups.group import Group
from anabranch.groups.parts import Surroundings, TopicFacts
from anabranch.wire.kafka.schema import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class NoTopics:
    def by_name(self, name: str) -> TopicFacts | None:
        return None

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        return None

    def names(self) -> frozenset[str]:
        return frozenset()


class Request:
    """A request and, in time, its answer."""

    def __init__(self) -> None:
        self.answer: Answer | None = None

    @property
    def waits(self) -> bool:
        return self.answer is None

    @property
    def code(self) -> int:
        assert self.answer is not None, "it waits"
        return int(self.answer["error_code"])

    @property
    def id(self) -> str:
        assert self.answer is not None, "it waits"
        return str(self.answer["member_id"])

    @property
    def generation(self) -> int:
        assert self.answer is not None, "it waits"
        return int(self.answer["generation_id"])

    @property
    def leads(self) -> bool:
        assert self.answer is not None, "it waits"
        return bool(self.answer["leader"] == self.answer["member_id"])


def subscription(*topics: str) -> bytes:
    named = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return b"\0\1" + len(topics).to_bytes(4) + named + b"\xff\xff\xff\xff" + bytes(4)


class Groups:
    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.config = GroupConfig(**config)
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.losing = False
        self.has_lost = False
        """What was written before could not be made safe either: answers that stand on it fail."""
        self._chance = Random(seed)
        self._begin()

    def _begin(self) -> None:
        self.timers: dict[Any, int] = {}
        self.groups: dict[str, Group] = {}
        self.part = ClassicGroups(Surroundings(lambda: self.config, NoTopics(), self._chance), self.groups)

    def __getitem__(self, group_id: str) -> ClassicGroup:
        group = self.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def restart(self) -> None:
        self._begin()
        for key, value in self.log:
            self.part.replay(key, value)
        effects = Effects()
        self.part.loaded(effects, self.now_ms)
        self.carry_out(effects)

    # --- requests

    def join(self, group_id: str, member_id: str = "", **options: Any) -> Request:
        protocols = options.pop("protocols", {"range": subscription("t")})
        who = Joining(
            member_id,
            options.pop("instance_id", None),
            options.pop("client_id", "app"),
            "/127.0.0.1",
            options.pop("session_timeout_ms", SESSION_MS),
            options.pop("rebalance_timeout_ms", REBALANCE_MS),
            options.pop("protocol_type", "consumer"),
            tuple(AssignmentProtocol(name, metadata) for name, metadata in protocols.items()),
            options.pop("version", 9),
        )
        assert not options
        request = Request()
        self.carry_out(self.part.join(group_id, who, request, self.now_ms))
        return request

    def join_twice(self, group_id: str, **options: Any) -> Request:
        """As a new dynamic member does: for an id, and with it."""
        first = self.join(group_id, **options)
        assert first.code == 79, "no id was promised"
        return self.join(group_id, first.id, **options)

    def sync(
        self, group_id: str, joined: Request, assignments: dict[str, bytes] | None = None, **options: Any
    ) -> Request:
        who = Syncing(
            options.pop("member_id", None) or joined.id,
            options.pop("instance_id", None),
            options.pop("generation", joined.generation),
            options.pop("protocol_type", "consumer"),
            options.pop("protocol", "range"),
            assignments or {},
        )
        assert not options
        request = Request()
        self.carry_out(self.part.sync(group_id, who, request, self.now_ms))
        return request

    def heartbeat(self, group_id: str, joined: Request, **options: Any) -> Request:
        request = Request()
        who = Identity(options.get("member_id", joined.id), options.get("instance_id"))
        generation = options.get("generation", joined.generation)
        may_hold = options.get("may_hold", False)
        effects = self.part.heartbeat(group_id, who, generation, request, self.now_ms, may_hold=may_hold)
        self.carry_out(effects)
        return request

    def leave(self, group_id: str, *leaving: tuple[str, str | None]) -> Request:
        request = Request()
        members = [Identity(*who) for who in leaving]
        self.carry_out(self.part.leave(group_id, members, request, self.now_ms))
        return request

    def make_stable(self, group_id: str, count: int, **options: Any) -> list[Request]:
        """A group of `count` dynamic members, each assigned its own number; the leader first."""
        joins = [self.join_twice(group_id, **options) for _ in range(count)]
        self.settle(group_id)
        joins.sort(key=lambda joined: not joined.leads)
        given = {joined.id: b"%d" % index for index, joined in enumerate(joins)}
        for joined in reversed(joins):
            self.sync(group_id, joined, given if joined.leads else None)
        assert self[group_id].state == "Stable"
        return joins

    def settle(self, group_id: str) -> None:
        """Let the time to gather pass, if this is a first rebalance."""
        while self[group_id].gathering_until_ms is not None:
            self.pass_ms(self.config.initial_rebalance_delay_ms)

    # --- time and effects

    def pass_ms(self, elapsed_ms: int) -> None:
        end_ms = self.now_ms + elapsed_ms
        while self.timers:
            timer = min(self.timers, key=lambda key: self.timers[key])
            if self.timers[timer] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.carry_out(self.part.timeout(timer, self.now_ms))
        self.now_ms = end_ms

    def carry_out(self, effects: Effects) -> None:
        for timer, time_ms in effects.timers.items():
            self.timers.pop(timer, None)
            if time_ms is not None:
                self.timers[timer] = time_ms
        if self.has_lost or (effects.records and self.losing):
            _answer(effects.otherwise)
            refused = {"error_code": ErrorCode.not_coordinator}
            _answer([(token, refused) for token, _ in effects.replies])
            return
        for key, value in effects.records:
            self.log.append((key, value))
            self.part.replay(key, value)
        for change in effects.then:
            change()
        _answer(effects.replies)


def _answer(replies: list[tuple[Any, Answer]]) -> None:
    for request, answer in replies:
        if request.answer is None:
            request.answer = answer
