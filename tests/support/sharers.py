"""A share group without a broker: a shard, its log, its timers, and members that behave.

sharers = Sharers({"orders": 4})
sharers.beat("a", "orders")   # joins
sharers.initialise()          # its partitions' states are kept from now on
sharers.settle("a")           # time passes, it heartbeats, and has its partitions
"""

from typing import Any
from uuid import UUID

from anabranch.groups.share_group import ShareGroup
from anabranch.groups.share_requests import ShareHeartbeat
from tests.support.consumers import World

GROUP = "s"
ORDERS = UUID(int=1)


class Sharers:
    """A share group and its members, whose partitions are initialised when a test says so."""

    def __init__(self, topics: dict[str, int], **config: Any) -> None:
        self.world = World(topics, **config)
        self.epochs: dict[str, int] = {}
        self.has: dict[str, list[int]] = {}

    @property
    def group(self) -> ShareGroup:
        group = self.world.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def ask(self, member_id: str, epoch: int, *topics: str, **told: Any) -> dict[str, Any]:
        names = frozenset(topics) if topics else None
        request = ShareHeartbeat(GROUP, member_id, epoch, topic_names=names, **told)
        shard, now_ms = self.world.shard, self.world.now_ms
        self.world.carry_out(shard.share.heartbeat(request, "beat", now_ms))
        return self.world.answers.pop("beat")

    def beat(self, member_id: str, *topics: str) -> dict[str, Any]:
        answer = self.ask(member_id, self.epochs.get(member_id, 0), *topics)
        if not answer.get("error_code"):
            self.epochs[member_id] = answer["member_epoch"]
            if answer["assignment"] is not None:
                given = answer["assignment"]["topic_partitions"]
                self.has[member_id] = sorted(p for topic in given for p in topic["partitions"])
        return answer

    def initialise(self) -> None:
        shares = self.group.topics.initialising
        effects = self.world.shard.share.begun(GROUP, shares, "begun", self.world.now_ms)
        self.world.carry_out(effects)

    def settle(self, *member_ids: str) -> None:
        for _ in range(3):
            self.world.pass_time(1000)
            for member_id in member_ids:
                self.beat(member_id)

    def join(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.beat(member_id, "orders")
        self.initialise()
        self.settle(*member_ids)
