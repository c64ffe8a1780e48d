"""Consumer groups under churn, against what must hold whatever happens.

Members join, heartbeat, forget to, give partitions up late, leave, come back, change their minds; topics
come, grow and go; answers are lost; the coordinator restarts from its log, whole or compacted.

After every step:
  * no partition is held by two members, and no live client owns one that the coordinator gave elsewhere;
  * a partition that stays with its member is never taken from it;
  * what the log says is what the coordinator knows.
Once everybody behaves: the group is Stable, every partition has one owner, and shares differ by one.
"""

from random import Random

import pytest

from tests.support.consumers import World

SEEDS = range(40)
STEPS = 250


class Churn:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = World({"t0": 5, "t1": 3})
        self.clients = {}
        self.made = 0

    def step(self) -> None:
        moves = (
            [self.beat] * 12
            + [self.wait] * 6
            + [self.join] * 2
            + [self.leave, self.die, self.lose, self.rejoin, self.resubscribe, self.topics, self.restart]
        )
        self.chance.choice(moves)()
        self.check()

    def some(self):
        return self.chance.choice(list(self.clients.values())) if self.clients else None

    def join(self) -> None:
        if len(self.clients) >= 8:
            return
        self.made += 1
        asks = {}
        if self.chance.random() < 0.3:
            asks["instance_id"] = f"i{self.chance.randrange(3)}"
        if self.chance.random() < 0.3:
            client = self.world.client(f"m{self.made}", topic_regex="t.*", **asks)
        else:
            client = self.world.client(f"m{self.made}", "t0", "t1", **asks)
        if client.beat().get("error_code"):
            return  # the instance id is taken
        self.clients[client.member_id] = client

    def beat(self) -> None:
        client = self.some()
        if client is None:
            return
        member = self.world.groups and self.world.group.members.get(client.member_id)
        before = {(t, p) for t, ps in client.owned.items() for p in ps}
        client.beat()
        after = {(t, p) for t, ps in client.owned.items() for p in ps}
        if member and client.member_id in self.world.group.members and client.epoch:
            target = self.world.group.targets.get(client.member_id, {})
            stays = {(t, p) for t, ps in target.items() for p in ps} & before
            assert stays <= after, "a partition that does not move was taken"
        if client.epoch == 0:
            del self.clients[client.member_id]

    def wait(self) -> None:
        self.world.pass_time(self.chance.choice((10, 100, 500, 2_000, 20_000)))

    def leave(self) -> None:
        client = self.some()
        if client is not None:
            away = client.asks.get("instance_id") is not None and self.chance.random() < 0.7
            client.leave(-2 if away else -1)
            del self.clients[client.member_id]

    def die(self) -> None:
        client = self.some()
        if client is not None:
            del self.clients[client.member_id]

    def lose(self) -> None:
        client = self.some()
        if client is not None:
            client.beat(loses_answer=True)
            client.epoch, client.owned = 0, {}  # it starts over

    def rejoin(self) -> None:
        client = self.some()
        if client is not None:
            client.epoch = 0

    def resubscribe(self) -> None:
        client = self.some()
        if client is not None and client.names and client.epoch:
            client.names = frozenset(self.chance.choice((("t0",), ("t0", "t1"), ("t0", "t1", "t2"))))
            client.epoch, client.owned = 0, {}

    def topics(self) -> None:
        name = f"t{self.chance.randrange(3)}"
        facts = self.world.topics.by_name(name)
        if facts is None:
            self.world.topics.put(name, self.chance.randint(1, 6))
        elif self.chance.random() < 0.3:
            self.world.topics.delete(name)
        else:
            self.world.topics.put(name, min(12, facts.num_partitions + 1))

    def restart(self) -> None:
        self.world.restart(compacted=self.chance.random() < 0.5)

    def check(self) -> None:
        if not self.world.groups:
            return
        group = self.world.group
        holders = {}
        for member in group.members.values():
            for held in (member.assigned, member.revoking):
                for topic, epochs in held.items():
                    for partition in epochs:
                        assert holders.setdefault((topic, partition), member.member_id) == member.member_id
        assert holders == group.owners
        for client in self.clients.values():
            if client.epoch and client.member_id in group.members:
                for topic, partitions in client.owned.items():
                    for partition in partitions:
                        assert holders.get((topic, partition)) == client.member_id
        assert group.target_epoch <= group.epoch

    def calm_down(self) -> None:
        for _ in range(120):
            for client in list(self.clients.values()):
                client.beat()
                self.world.pass_time(100)
                self.check()
        self.world.pass_time(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_churn(seed):
    churn = Churn(seed)
    for _ in range(STEPS):
        churn.step()
    for client in list(churn.clients.values()):
        churn.world.pass_time(100)
        client.beat()
    # Those that died or are away are gone after a session; the rest keep beating.
    for _ in range(50):
        churn.world.pass_time(1_000)
        for client in churn.clients.values():
            client.beat()
    churn.calm_down()
    world = churn.world
    assert set(world.group.members) == set(churn.clients)
    if not churn.clients:
        return
    assert world.group.state == "Stable"
    owned = [
        (topic, partition)
        for client in churn.clients.values()
        for topic, partitions in client.owned.items()
        for partition in partitions
    ]
    wanted = {
        (facts.topic_id, partition)
        for name in sorted(world.topics.names())
        for facts in [world.topics.by_name(name)]
        for partition in range(facts.num_partitions)
        if any(client.names is None or name in client.names for client in churn.clients.values())
    }
    assert sorted(owned) == sorted(wanted)
    if len({frozenset(client.names or ("t0", "t1", "t2")) for client in churn.clients.values()}) == 1:
        counts = [client.count for client in churn.clients.values()]
        assert max(counts) - min(counts) <= 1
