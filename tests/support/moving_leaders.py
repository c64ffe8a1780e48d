"""A broker whose leaders resign and are elected all the time, as the controller of a cluster would have it.

    BrokerProcess(folder, wrapper=moving_leaders.wrapper(seed=1, pause_s=0.02))

    python -m tests.support.moving_leaders SEED PAUSE_S AWAY_S .venv/bin/anabranch standalone ...

All topics take turns, internal ones too, each with any of its partitions that is open.  A leader resigns
because the controller has written that there is none; a moment later there is one again, in the next epoch.
What had none when the broker was killed has one again when it has started.
"""

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

from anabranch.base.errors import AnabranchError
from anabranch.base.ids import TopicName
from anabranch.cli.main import main
from anabranch.meta.image import NO_BROKER
from anabranch.node import Node

_start = Node.start


def wrapper(seed: int, pause_s: float = 0.02, away_s: float = 0.05) -> tuple[str, ...]:
    """What stands before the broker's command: one move every `pause_s`, without a leader up to `away_s`."""
    return (sys.executable, str(Path(__file__).resolve()), str(seed), str(pause_s), str(away_s))


def moves_in(log: Path) -> Counter[str]:
    """How many leaders were elected after others had resigned, by topic, as the broker's log tells."""
    lines = log.read_text(errors="replace").splitlines()
    return Counter(
        line.removeprefix("MOVED ").rpartition("-")[0] for line in lines if line.startswith("MOVED ")
    )


async def _move_for_ever(node: Node, chance: random.Random, pause_s: float, away_s: float) -> None:
    for topic in list(node.parts.host.topics()):
        for state in topic.image.partitions:
            if state.leader == NO_BROKER:
                await _move(node, topic.name, state.index, away_s=0)
    turn: list[TopicName] = []
    while True:
        await asyncio.sleep(pause_s)
        places = _led_places(node)
        turn = [name for name in turn if name in places] or chance.sample(list(places), len(places))
        if turn:
            name = turn.pop()
            await _move(node, name, chance.choice(places[name]), away_s=chance.uniform(0, away_s))


def _led_places(node: Node) -> dict[TopicName, list[int]]:
    """The partitions that have a leader at work, by topic."""
    found: dict[TopicName, list[int]] = {}
    for topic in node.parts.host.topics():
        for index, partition in enumerate(topic.partitions):
            if partition is not None:
                found.setdefault(topic.name, []).append(index)
    return found


async def _move(node: Node, name: TopicName, index: int, away_s: float) -> None:
    cluster = node.parts.cluster
    try:
        await cluster.controller.elect_leader(name, index, NO_BROKER, "a test moves leaders")
        await asyncio.sleep(away_s)
        await cluster.controller.elect_leader(name, index, node._config.node.node_id, "a test moves leaders")
    except AnabranchError as error:  # the topic was deleted
        print(f"not moved: {name.kafka}-{index}: {error}", flush=True)
    else:
        print(f"MOVED {name.kafka}-{index}", flush=True)


if __name__ == "__main__":
    seed, pause_s, away_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])

    async def start(self: Node) -> None:
        await _start(self)
        self._run(_move_for_ever(self, random.Random(seed), pause_s, away_s))

    setattr(Node, "start", start)  # noqa: B010  a method, which mypy would not have assigned
    sys.argv = sys.argv[4:]
    main()
