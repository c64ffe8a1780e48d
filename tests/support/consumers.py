"""Consumer groups without a broker: a shard, its log, its timers, and clients that behave.

world = World({"orders": 4})
a = world.client("a", "orders")
a.beat()                 # joins, and takes what it is given
world.pass_time(500)     # timers run as they come
"""

import copy
from random import Random
from typing import Any
from uuid import UUID

from anabranch.groups.config import GroupConfig
from anabranch.groups.consumer_group import ConsumerGroup
from anabranch.groups.consumer_requests import Heartbeat
from anabranch.groups.effects import Answer, Effects
from anabranch.groups.group import Group
from anabranch.groups.parts import Surroundings, TopicFacts
from anabranch.groups.shard import GroupShard
from anabranch.groups.share_group import ShareGroup

GROUP = "g"


class FakeTopics:
    def __init__(self) -> None:
        self._by_name: dict[str, TopicFacts] = {}
        self._by_id: dict[UUID, TopicFacts] = {}
        self._names: frozenset[str] = frozenset()
        self._made = 0

    def put(self, name: str, partitions: int, racks: tuple[str, ...] = ()) -> TopicFacts:
        """Make a topic, or let one grow."""
        known = self._by_name.get(name)
        self._made += known is None
        topic_id = known.topic_id if known else UUID(int=self._made)
        facts = TopicFacts(name, topic_id, (frozenset(racks),) * partitions)
        self._by_name[name] = self._by_id[topic_id] = facts
        if known is None:
            self._names = frozenset(self._by_name)
        return facts

    def delete(self, name: str) -> None:
        del self._by_id[self._by_name.pop(name).topic_id]
        self._names = frozenset(self._by_name)

    def by_name(self, name: str) -> TopicFacts | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        return self._by_id.get(topic_id)

    def names(self) -> frozenset[str]:
        return self._names


class World:
    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        self.topics = FakeTopics()
        for name, partitions in (topics or {}).items():
            self.topics.put(name, partitions)
        self.told: dict[str, dict[str, str]] = {}
        """What groups are told by themselves."""
        self.around = Surroundings(lambda: GroupConfig(**config), self.topics, Random(7), self.told.get)
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[Any, int] = {}
        self.shard = GroupShard(self.around)
        self.answers: dict[Any, Answer] = {}
        self.loses_writes = False

    @property
    def groups(self) -> dict[str, Group]:
        return self.shard.groups

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def client(self, member_id: str, *names: str, **asks: Any) -> "Client":
        return Client(self, member_id, names, **asks)

    def carry_out(self, effects: Effects) -> None:
        for timer, time_ms in effects.timers.items():
            self.timers.pop(timer, None)
            if time_ms is not None:
                self.timers[timer] = time_ms
        if self.loses_writes and effects.records:
            self.answers.update(effects.otherwise)
            return
        assert effects.encoded is None, "members commit few offsets here"
        for record in effects.records:
            self.log.append(record)
            self.shard.replay(record.key, record.value)
        for change in effects.then:
            change()
        self.answers.update(effects.replies)

    def ask(self, **fields: Any) -> Answer:
        """Raw: whatever is asked."""
        request = Heartbeat(**{"group_id": GROUP, "client_host": "/127.0.0.1", **fields})
        self.carry_out(self.shard.consumer.heartbeat(request, "heartbeat", self.now_ms))
        return self.answers.pop("heartbeat")

    def pass_time(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.timers:
            timer, time_ms = min(self.timers.items(), key=lambda item: item[1])
            if time_ms > end_ms:
                break
            del self.timers[timer]
            self.now_ms = max(self.now_ms, time_ms)
            self.carry_out(self.shard.timeout(timer, self.now_ms))
        self.now_ms = end_ms

    def restart(self, *, compacted: bool = False) -> None:
        """Read everything back from the log."""
        before = copy.deepcopy(durable(self.groups))
        latest: dict[bytes, bytes | None] = {}
        for key, value in reversed(self.log):
            latest.setdefault(key, value)
        log = list(latest.items())[::-1] if compacted else self.log
        self.shard = GroupShard(self.around)
        for key, value in log:
            self.shard.replay(key, value)
        self.timers = {}
        self.carry_out(self.shard.loaded(self.now_ms))
        assert durable(self.groups) == before


def durable(groups: dict[str, Group]) -> dict[str, Any]:
    """All that a restart must find again."""
    soft = ("looked_at_topics_ms", "names_seen", "told_to_rejoin")
    return {
        group_id: {name: value for name, value in vars(group).items() if name not in soft}
        for group_id, group in groups.items()
        if isinstance(group, ConsumerGroup | ShareGroup)
    }


class Client:
    """A consumer: it does as it is told, and says what it owns when that changes."""

    def __init__(self, world: World, member_id: str, names: tuple[str, ...], **asks: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.names: frozenset[str] | None = frozenset(names) if names else None
        self.asks = asks
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.interval_ms = 0
        self._has_news = False

    def beat(self, *, loses_answer: bool = False) -> Answer:
        """Heartbeat, then give up at once what it must."""
        asks = dict(self.asks)
        instance_id = asks.pop("instance_id", None)
        if self.epoch == 0:
            self.owned = {}
            asks |= {"rebalance_timeout_ms": 60_000, "topic_names": self.names, "owned": {}}
        else:
            asks = {"owned": self.owned if self._has_news else None}
        answer = self.world.ask(member_id=self.member_id, epoch=self.epoch, instance_id=instance_id, **asks)
        if loses_answer:
            return answer
        if answer.get("error_code"):
            self.epoch, self.owned = 0, {}
            return answer
        self.epoch = answer["member_epoch"]
        self.interval_ms = answer["heartbeat_interval"]
        self._has_news = False
        if answer["assignment"] is not None:
            self.take(
                {t["topic_id"]: frozenset(t["partitions"]) for t in answer["assignment"]["topic_partitions"]}
            )
        return answer

    def take(self, told: dict[UUID, frozenset[int]]) -> None:
        self._has_news = told != self.owned
        self.owned = told

    def leave(self, epoch: int = -1) -> Answer:
        answer = self.world.ask(
            member_id=self.member_id, epoch=epoch, instance_id=self.asks.get("instance_id")
        )
        self.epoch, self.owned = 0, {}
        return answer

    @property
    def count(self) -> int:
        return sum(len(partitions) for partitions in self.owned.values())


def settle(*clients: Client, rounds: int = 6) -> None:
    for _ in range(rounds):
        for client in clients:
            client.beat()
            client.world.pass_time(100)
