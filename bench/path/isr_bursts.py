"""Bursts and the ISR: how far in-sync followers are behind, by the rule of Kafka 0.8 and by ours.

    python -P -m bench.path.isr_bursts [SECONDS] [BATCHES A BURST]

Three nodes in one process, a partition of three replicas; ten bursts a second of batches of 1,000 messages of
100 bytes with acks=1.  Ten times a second it notes what each follower lacks of what its leader has (Kafka 0.8
looked at that, every five seconds) and of what its leader had a second before (`partition/in_sync`).
"""

import asyncio
import sys
import tempfile
from collections import deque
from pathlib import Path

from anabranch.base.ids import BrokerId, TopicName
from tests.support.logs import records
from tests.support.two_nodes import THREE, two_nodes

TOPIC = TopicName.from_kafka("bursts")
LIMIT = 4000


async def measure(seconds: int, batches: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with two_nodes(Path(folder), THREE, replica_lag_max_messages="-1") as nodes:
            await nodes.create(TOPIC, 1)
            role = nodes.nodes[BrokerId(1)].parts.host.partition(TOPIC, 0)
            batch = bytes(records(*("x" * 100 for _ in range(1000))))
            ends: deque[int] = deque([0] * 10, 10)
            now, before = [], []
            for _ in range(seconds * 10):
                for _ in range(batches):
                    role.append(memoryview(bytearray(batch)), 1)
                await asyncio.sleep(0.1)
                assert role.led is not None
                for follower in role.led.in_sync.followers.values():
                    now.append(role.log_end - max(0, follower.end))
                    before.append(ends[0] - max(0, follower.end))
                ends.append(role.log_end)
            for name, lacks in (("of now", now), ("of a second ago", before)):
                beyond = sum(one > LIMIT for one in lacks)
                print(
                    f"{name}: most {max(lacks):,}, more than {LIMIT:,} at {beyond} of {len(lacks)} looks",
                )


if __name__ == "__main__":
    asyncio.run(measure(*(int(text) for text in (*sys.argv[1:], "10", "20")[:2])))
