"""A broker whose partitions change hands: one node that leads, resigns and is elected again, for ever.

    python -P tests/support/double_broker.py ACK_MS MOVE_S SEED .venv/bin/anabranch standalone ...

It is `anabranch standalone`, with two differences, both from SEED.  A follower, made up
(`acknowledgements.py`), is in sync with everything that it leads and gets each append up to ACK_MS later, at
least a fifth of that.  And every MOVE_S or so all leaders that there are resign, and are elected again by the
documents in which a controller says so: at once, or after a moment in which nobody leads; 0 is never.

The leaders of internal topics do so every fifteenth time.  What coordinators only remember begins anew with
each, as in Apache Kafka: joins that wait for others, and the time in which a member may be silent.  If
they changed faster than members are given up, no group would ever be rid of one that died.

Pulsar's messages are deduplicated unless a test says otherwise: a producer sends again what is in the log,
though its leader resigned before it could say so.
"""

import asyncio
import os
import sys
from itertools import count
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from anabranch.base.errors import UnknownTopic  # noqa: E402
from anabranch.base.ids import TopicName  # noqa: E402
from anabranch.cli import serving  # noqa: E402
from anabranch.cli.main import main  # noqa: E402
from anabranch.meta.image import NO_BROKER  # noqa: E402
from anabranch.node import Node  # noqa: E402
from anabranch.node_parts import NodeWorld  # noqa: E402
from anabranch.server.config import BrokerConfig  # noqa: E402
from tests.support.acknowledgements import Follower  # noqa: E402

_LEAST = 0.2  # of the time that an append takes to the follower
_INTERNAL_EVERY = 15
_VACANT_S = 0.05  # for which nobody leads, at most

Whose = tuple[TopicName, int]


def double(ack_ms: float = 5, move_s: float = 1, seed: int = 7) -> tuple[str, ...]:
    """What stands before the broker's command to have it so."""
    return (sys.executable, "-P", str(Path(__file__).resolve()), str(ack_ms), str(move_s), str(seed))


ON_DOUBLE = os.environ.get("ANABRANCH_BROKER") == "double"
"""Whether tests of clients are to have it instead of the plain broker."""


class DoubleNode(Node):
    ack_s = move_s = 0.0
    seed = 0

    def __init__(self, config: BrokerConfig, world: NodeWorld) -> None:
        super().__init__(config, world)
        self._me = config.node.node_id
        self._chance = Random(self.seed)

    async def start(self) -> None:
        await super().start()
        if self.ack_s:
            Follower(self.parts.host, lambda: self.ack_s * self._chance.uniform(_LEAST, 1))
        await self._elect(self._led_by_nobody())  # a stop in between leaves some
        if self.move_s:
            self._run(self._move_for_ever())

    async def _move_for_ever(self) -> None:
        for number in count(1):
            await asyncio.sleep(self.move_s * self._chance.uniform(0.5, 1.5))
            led = self._led(internal=number % _INTERNAL_EVERY == 0)
            if self._chance.random() < 0.5:
                await self._elect(led)
                continue
            await self._resign(led)
            await asyncio.sleep(self._chance.uniform(0, _VACANT_S))
            await self._elect(self._led_by_nobody())

    def _led(self, *, internal: bool) -> list[Whose]:
        led = [
            (topic.name, partition.index)
            for topic in self.parts.host.topics()
            if internal or not topic.image.is_internal
            for partition in topic.partitions
            if partition is not None
        ]
        self._chance.shuffle(led)
        return led

    def _led_by_nobody(self) -> list[Whose]:
        return [
            (topic.name, state.index)
            for topic in self.parts.cluster.image.topics.values()
            for state in topic.partitions
            if state.leader == NO_BROKER
        ]

    async def _elect(self, whose: list[Whose]) -> None:
        for name, index in whose:
            try:
                await self.parts.cluster.controller.elect_leader(name, index, self._me, "the double moves")
            except UnknownTopic:  # it was deleted meanwhile
                continue

    async def _resign(self, whose: list[Whose]) -> None:
        for name, index in whose:
            try:
                await self.parts.cluster.controller.elect_leader(name, index, NO_BROKER, "the double moves")
            except UnknownTopic:
                continue


if __name__ == "__main__":
    DoubleNode.ack_s, DoubleNode.move_s = float(sys.argv[1]) / 1000, float(sys.argv[2])
    DoubleNode.seed = int(sys.argv[3])
    setattr(serving, "Node", DoubleNode)  # noqa: B010  a class, which mypy would not have assigned
    command, *arguments = sys.argv[5:]
    sys.exit(main([command, "--set", "brokerDeduplicationEnabled=true", *arguments]))
