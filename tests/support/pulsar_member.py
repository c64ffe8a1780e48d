"""A consumer of a Pulsar subscription that keeps a diary: what came and what it acknowledged, with the time.

    pulsar_member.py --service pulsar://... --topic T --kind KeyShared --diary FILE

A line is "TIME got|ack NUMBER KEY .", the dot so that a line cut by a kill is known.  The time is that of the
machine's monotonic clock.  SIGTERM: it closes and goes.
"""

import argparse
import os
import random
import signal
import time
from pathlib import Path

import pulsar


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("service", "topic", "kind", "diary"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    client = pulsar.Client(args.service, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    consumer = client.subscribe(
        args.topic, "s", getattr(pulsar.ConsumerType, args.kind), receiver_queue_size=50
    )
    with Path(args.diary).open("w", buffering=1) as diary:
        while not stopping:
            try:
                message = consumer.receive(timeout_millis=100)
            except pulsar.Timeout:
                continue
            line = f"{message.data().decode()} {message.partition_key()} ."
            diary.write(f"{time.monotonic()} got {line}\n")
            if random.random() < 0.05:
                time.sleep(random.random() * 0.02)
            consumer.acknowledge(message)
            diary.write(f"{time.monotonic()} ack {line}\n")
    consumer.close()
    client.close()


if __name__ == "__main__":
    main()
