"""A group moves from the classic protocol to the consumer protocol and back while it is read."""

import pytest

from anabranch.groups.classic_group import ClassicGroup
from anabranch.groups.classic_join import Joining
from anabranch.groups.classic_member import AssignmentProtocol
from anabranch.groups.classic_sync import Identity, Syncing
from anabranch.groups.config import GroupConfig
from anabranch.groups.consumer_embedded import read_assignment, read_subscription
from anabranch.groups.consumer_group import ConsumerGroup
from anabranch.groups.shard import GroupShard
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.consumers import GROUP, World

NO_DATA = b"\xff\xff\xff\xff"


def text(name):
    return len(name).to_bytes(2) + name.encode()


def partitions(owned):
    by_topic = b"".join(
        text(name) + len(indexes).to_bytes(4) + b"".join(i.to_bytes(4) for i in sorted(indexes))
        for name, indexes in sorted(owned.items())
    )
    return len(owned).to_bytes(4) + by_topic


def subscription(owned):
    return b"\0\1" + (1).to_bytes(4) + text("orders") + NO_DATA + partitions(owned)


def assignment(owned):
    return b"\0\1" + partitions(owned) + NO_DATA


class Old:
    """A consumer of the classic protocol that rebalances cooperatively."""

    def __init__(self, world, instance_id=None):
        self.world = world
        self.member_id = ""
        self.instance_id = instance_id
        self.generation = -1
        self.owned = {}

    def join(self, names=("cooperative-sticky",), kind="consumer", version=3):
        protocols = tuple(AssignmentProtocol(name, subscription(self.owned)) for name in names)
        who = Joining(self.member_id, self.instance_id, "old", "/h", 10_000, 60_000, kind, protocols, version)
        self.world.carry_out(self.world.shard.classic.join(GROUP, who, self, self.world.now_ms))
        return self.joined()

    def joined(self):
        answer = self.world.answers.pop(self, None)
        if answer and not answer["error_code"]:
            self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        return answer

    def sync(self, assignments=None):
        who = Syncing(self.member_id, self.instance_id, self.generation, None, None, assignments or {})
        self.world.carry_out(self.world.shard.classic.sync(GROUP, who, self, self.world.now_ms))
        return self.synced()

    def synced(self):
        answer = self.world.answers.pop(self)
        if not answer["error_code"]:
            self.owned = read_assignment(answer["assignment"])
        return answer["error_code"]

    def beat(self):
        who = Identity(self.member_id, self.instance_id)
        classic = self.world.shard.classic
        self.world.carry_out(classic.heartbeat(GROUP, who, self.generation, self, self.world.now_ms))
        return self.world.answers.pop(self)["error_code"]

    def leave(self):
        who = Identity(self.member_id, self.instance_id)
        self.world.carry_out(self.world.shard.classic.leave(GROUP, [who], self, self.world.now_ms))
        return self.world.answers.pop(self)

    def go_on(self):
        """What a client does with the answer to its heartbeat."""
        if self.beat() == ErrorCode.rebalance_in_progress:
            self.join()
            self.sync()
            return True
        return False


def classic_group(members=2, **config):
    """Two classic members, each with half of the partitions."""
    world = World({"orders": 4}, initial_rebalance_delay_ms=0, **config)
    old = [Old(world) for _ in range(members)]
    for client in old:
        client.join()
    world.pass_time(10)
    for client in old:
        if client.member_id == "":
            client.joined()
    while len({client.generation for client in old}) > 1 or old[0].generation < 0:
        for client in old:
            client.join()
        for client in old:
            client.joined()
    shares = {c.member_id: assignment({"orders": range(i, 4, members)}) for i, c in enumerate(old)}
    leader = world.groups[GROUP].leader
    for client in sorted(old, key=lambda client: client.member_id == leader):
        who = Syncing(client.member_id, None, client.generation, None, None, shares)
        world.carry_out(world.shard.classic.sync(GROUP, who, client, world.now_ms))
    for client in old:
        client.synced()
    return world, old


def all_owned(world, old, new):
    orders = world.topics.by_name("orders").topic_id
    owned = [p for client in old for p in client.owned.get("orders", ())]
    return sorted(owned + [p for client in new for p in client.owned.get(orders, ())])


def come_to_rest(world, old, new, rounds=10):
    for _ in range(rounds):
        for client in new:
            client.beat()
        for client in old:
            client.go_on()
        owned = all_owned(world, old, new)
        assert len(owned) == len(set(owned)), "two read the same partition"
        world.pass_time(200)


def test_embedded_subscriptions():
    v3 = b"\0\3" + (1).to_bytes(4) + text("t") + NO_DATA + partitions({"t": [1]}) + bytes(4) + text("rack")
    read = read_subscription(v3)
    assert (read.version, read.topics, read.owned, read.rack_id) == (3, {"t"}, {"t": {1}}, "rack")
    v0 = read_subscription(b"\0\0" + (1).to_bytes(4) + text("t") + NO_DATA)
    assert (v0.owned, v0.rack_id) == ({}, None)


def test_a_classic_group_is_upgraded_by_the_first_new_consumer():
    world, old = classic_group()
    had = [set(client.owned["orders"]) for client in old]
    new = world.client("n", "orders")
    assert new.beat()["member_epoch"] == old[0].generation + 1
    assert isinstance(world.groups[GROUP], ConsumerGroup)
    world.restart()
    world.restart(compacted=True)
    come_to_rest(world, old, [new])
    assert world.group.state == "Stable"
    assert all_owned(world, old, [new]) == [0, 1, 2, 3]
    assert new.count == 1
    for client, before in zip(old, had, strict=True):
        assert set(client.owned["orders"]) <= before  # what does not move stays where it was
    members = {m["member_id"]: m for m in world.shard.consumer.describe(GROUP)["members"]}
    assert [members[client.member_id]["member_type"] for client in old] == [0, 0]
    assert members["n"]["member_type"] == 1


def test_the_last_new_consumer_takes_the_protocol_with_it():
    world, old = classic_group()
    new = world.client("n", "orders")
    come_to_rest(world, old, [new])
    new.leave()
    group = world.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state == "PreparingRebalance"
    assert [client.beat() for client in old] == [ErrorCode.rebalance_in_progress] * 2
    generation = old[0].generation
    for client in old:
        client.join()
    for client in old:
        client.joined()
    assert {client.generation for client in old} == {generation + 1}
    assert group.leader in {client.member_id for client in old}
    world.restart()
    assert set(world.groups[GROUP].members) == {client.member_id for client in old}


def test_a_group_whose_classic_members_leave_is_a_consumer_group():
    world, old = classic_group()
    new = world.client("n", "orders")
    come_to_rest(world, old, [new])
    for client in old:
        assert client.leave()["members"][0]["error_code"] == ErrorCode.none
        client.owned = {}
    come_to_rest(world, [], [new])
    assert new.count == 4
    assert old[0].leave()["members"][0]["error_code"] == ErrorCode.unknown_member_id


def test_classic_consumers_may_still_join():
    world, old = classic_group(1)
    new = world.client("n", "orders")
    come_to_rest(world, old, [new])
    late = Old(world)
    answer = late.join(version=4)
    assert answer["error_code"] == ErrorCode.member_id_required
    late.member_id = answer["member_id"]
    answer = late.join(version=4)
    assert (answer["error_code"], answer["leader"], answer["members"]) == (ErrorCode.none, "", [])
    assert late.sync() == ErrorCode.none
    come_to_rest(world, [*old, late], [new])
    assert all_owned(world, [*old, late], [new]) == [0, 1, 2, 3]


def test_who_is_told_to_join_again_and_does_not_is_out():
    world, old = classic_group(1)
    new = world.client("n", "orders")
    new.beat()
    for _ in range(70):
        world.pass_time(1000)
        new.beat()
        told = old[0].beat()
    assert told == ErrorCode.unknown_member_id
    assert new.count == 4


def test_whoever_waits_for_a_classic_rebalance_is_told_to_start_over():
    world, old = classic_group()
    newcomer = Old(world)
    newcomer.join()
    assert world.groups[GROUP].state == "PreparingRebalance"
    new = world.client("n", "orders")
    new.beat()
    answer = newcomer.joined()
    assert answer["error_code"] == ErrorCode.rebalance_in_progress
    newcomer.member_id = answer["member_id"]
    newcomer.join()
    newcomer.sync()
    everybody = [*old, newcomer]
    come_to_rest(world, everybody, [new])
    assert all_owned(world, everybody, [new]) == [0, 1, 2, 3]


def test_a_static_member_changes_its_protocol():
    world = World({"orders": 4}, initial_rebalance_delay_ms=0)
    old = Old(world, "i")
    old.join()
    world.pass_time(10)
    old.joined()
    who = Syncing(
        old.member_id, "i", old.generation, None, None, {old.member_id: assignment({"orders": range(4)})}
    )
    world.carry_out(world.shard.classic.sync(GROUP, who, old, world.now_ms))
    old.synced()
    new = world.client("n", "orders", instance_id="i")
    new.beat()
    new.beat()
    assert list(world.group.members) == ["n"]
    assert new.count == 4
    assert old.beat() == ErrorCode.fenced_instance_id


def test_the_last_new_consumer_comes_back_as_a_classic_one():
    world, old = classic_group(1)
    new = world.client("n", "orders", instance_id="i")
    come_to_rest(world, old, [new])
    new.leave(epoch=-2)
    back = Old(world, "i")
    answer = back.join(version=5)
    assert (answer["error_code"], answer["generation_id"]) == (ErrorCode.none, world.groups[GROUP].generation)
    group = world.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state == "PreparingRebalance"
    assert back.sync() == ErrorCode.rebalance_in_progress
    world.restart(compacted=True)
    everybody = [*old, back]
    assert set(world.groups[GROUP].members) == {client.member_id for client in everybody}
    for client in everybody:
        assert world.shard.classic.describe(GROUP)["group_state"] == "Stable"
        assert client.beat() == ErrorCode.none


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_last_new_consumer_stays_in_its_group_if_a_downgrade_is_forbidden(policy):
    world, old = classic_group(1)
    new = world.client("n", "orders", instance_id="i")
    come_to_rest(world, old, [new])
    config = GroupConfig(consumer_migration_policy=policy)
    world.shard = GroupShard(world.around._replace(config=lambda: config))
    for key, value in world.log:
        world.shard.replay(key, value)
    new.leave(epoch=-2)
    back = Old(world, "i")
    assert back.join(version=5)["error_code"] == ErrorCode.none
    assert isinstance(world.groups[GROUP], ConsumerGroup)
    assert back.member_id in world.groups[GROUP].members


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_may_be_forbidden(policy):
    world, _ = classic_group(consumer_migration_policy=policy)
    assert world.client("n", "orders").beat()["error_code"] == ErrorCode.group_id_not_found
    assert isinstance(world.groups[GROUP], ClassicGroup)


def test_a_downgrade_may_be_forbidden():
    world, old = classic_group(consumer_migration_policy="upgrade")
    new = world.client("n", "orders")
    come_to_rest(world, old, [new])
    new.leave()
    come_to_rest(world, old, [])
    assert world.group.state == "Stable"
    assert all_owned(world, old, []) == [0, 1, 2, 3]


def test_what_classic_members_may_not_do():
    world, old = classic_group(1)
    new = world.client("n", "orders")
    come_to_rest(world, old, [new])
    stranger = Old(world)
    assert stranger.join(kind="connect")["error_code"] == ErrorCode.inconsistent_group_protocol
    assert stranger.join(names=("range",))["error_code"] == ErrorCode.inconsistent_group_protocol
    stranger.member_id, stranger.generation = "n", new.epoch
    assert stranger.beat() == ErrorCode.unknown_member_id  # it does not speak this protocol
    old[0].generation += 1
    assert old[0].beat() == ErrorCode.illegal_generation
    assert old[0].sync() == ErrorCode.illegal_generation


def test_an_empty_classic_group_gives_way():
    world, old = classic_group(1)
    old[0].leave()
    assert world.groups[GROUP].is_empty
    new = world.client("n", "orders")
    new.beat()
    assert new.count == 4
    world.restart(compacted=True)
