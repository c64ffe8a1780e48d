"""Share groups as members come, go, die and change their minds, topics too, and brokers restart.

What must hold whenever all is quiet: every partition of a topic that somebody subscribes to is read by
somebody who does, nobody reads anything else, and everybody whose topics are there has something to read.
"""

from random import Random

import pytest

from tests.support.sharers import Sharers

TOPICS = ("orders", "prices", "stock")
SESSION_MS = 45_000


class Churn:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.sharers = Sharers({"orders": 3, "prices": 1})
        self.alive: set[str] = set()
        self.made = 0

    def act(self) -> None:
        chance, sharers = self.chance, self.sharers
        what = chance.random()
        if what < 0.2 and len(self.alive) < 8:
            self.made += 1
            name = f"m{self.made}"
            sharers.beat(name, *chance.sample(TOPICS, chance.randint(1, 3)))
            self.alive.add(name)
        elif what < 0.3 and self.alive:
            name = chance.choice(sorted(self.alive))
            sharers.ask(name, -1)
            self.alive.discard(name)
        elif what < 0.35 and self.alive:
            self.alive.discard(chance.choice(sorted(self.alive)))  # and is not heard of again
        elif what < 0.45 and self.alive:
            sharers.beat(chance.choice(sorted(self.alive)), *chance.sample(TOPICS, chance.randint(1, 3)))
        elif what < 0.5:
            self.change_a_topic(chance.choice(TOPICS))
        elif what < 0.55:
            sharers.world.restart(compacted=chance.random() < 0.5)
        elif what < 0.65 and self.has_group and sharers.group.topics.initialising:
            sharers.initialise()
        else:
            sharers.world.pass_time(chance.choice((10, 400, 3_000)))
            for name in sorted(self.alive):
                assert not sharers.beat(name).get("error_code")

    @property
    def has_group(self) -> bool:
        return bool(self.sharers.world.groups)

    def change_a_topic(self, name: str) -> None:
        world = self.sharers.world
        known = world.topics.by_name(name)
        if known is not None and self.chance.random() < 0.5:
            world.topics.delete(name)
            world.carry_out(world.shard.share.forget_topics({known.topic_id}, world.now_ms))
        else:
            count = self.chance.randint(1, 2) + (known.num_partitions if known is not None else 0)
            world.topics.put(name, min(count, 6))

    def settle(self) -> None:
        sharers = self.sharers
        for _ in range(SESSION_MS // 3_000 + 5):
            sharers.world.pass_time(3_000)
            for name in sorted(self.alive):
                sharers.beat(name)
            if self.has_group:
                sharers.initialise()

    def check(self) -> None:
        if not self.has_group:
            return
        group, topics = self.sharers.group, self.sharers.world.topics
        assert set(group.members) == self.alive
        assert group.state == ("Stable" if self.alive else "Empty")
        read = {
            (topic, p)
            for member in group.members.values()
            for topic, ps in member.assigned.items()
            for p in ps
        }
        wanted = {
            (facts.topic_id, p)
            for member in group.members.values()
            for name in member.topic_names
            if (facts := topics.by_name(name)) is not None
            for p in range(facts.num_partitions)
        }
        assert read == wanted
        for member in group.members.values():
            asked = {topics.by_name(name) for name in member.topic_names} - {None}
            assert member.assigned.keys() <= {facts.topic_id for facts in asked if facts is not None}
            assert member.epoch == group.target_epoch == group.epoch
            assert bool(member.assigned) == bool(asked)  # each topic is shared out to all its members


@pytest.mark.parametrize("seed", range(12))
def test_who_reads_what_as_everything_changes(seed: int) -> None:
    churn = Churn(seed)
    for _ in range(6):
        for _ in range(churn.chance.randint(1, 40)):
            churn.act()
        churn.settle()
        churn.check()
