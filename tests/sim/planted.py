"""Bugs planted on purpose, one at a time: how many seeds until the simulation finds each.

    python -m tests.sim.planted                    all of them, up to 200 seeds each
    python -m tests.sim.planted early-ack 1..50    one

A bug is a function that changes a class of the broker in the process of one run.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from anabranch.groups import runtime
from anabranch.groups.replaying import replay_from
from anabranch.log.truncation import truncate_to
from anabranch.partition import watermark
from anabranch.partition.following import Following
from anabranch.partition.partition import ALL, Partition
from anabranch.partition.partition_log import Isolation
from tests.sim.run import DIED, outcomes, seeds_of, warm_up

_SEEDS = "1..200"


def truncate_to_the_watermark() -> None:
    """A follower cuts its log at its high watermark, as Kafka's did before KIP-101."""
    begin: Callable[..., None] = Following.__init__

    def cut(self: Following, replica: Any, leader_epoch: int, disk: Any) -> None:
        begin(self, replica, leader_epoch, disk)
        if replica.high_watermark < replica.log.log_end:
            truncate_to(disk, replica.log, replica.high_watermark)
            replica.truncated()

    Following.__init__ = cut  # type: ignore[method-assign]
    _forget_epochs()


def _forget_epochs() -> None:
    asked = Following.asked

    def ask(self: Following, max_bytes: int) -> dict[str, Any]:
        return asked(self, max_bytes) | {"last_fetched_epoch": -1}

    Following.asked = ask  # type: ignore[method-assign]


def check_no_epoch() -> None:
    """A leader compares its history with nobody's, and answers who knows another epoch."""
    _forget_epochs()
    Partition.check_leader_epoch = lambda self, epoch: None  # type: ignore[method-assign]


def acknowledge_early() -> None:
    """acks=all is answered once the leader has it."""
    wait = Partition.acknowledgement

    def at_once(self: Partition, end: int, acks: int = ALL) -> "asyncio.Future[None] | None":
        return wait(self, end, 1)

    Partition.acknowledgement = at_once  # type: ignore[method-assign]


def believe_a_stale_isr() -> None:
    """A leader takes the slowest replica to be out of sync, and the controller elects it all the same."""
    vars(watermark)["min"] = lambda ends: sorted(ends)[1 if len(ends) > 2 else 0]


def load_to_the_watermark() -> None:
    """A coordinator reads its log back to the high watermark."""

    def replay(partition: Partition, shard: Any, offset: int) -> int:
        if offset >= partition.high_watermark:
            return partition.log_end
        return replay_from(partition, shard, offset)

    def read(partition: Partition, shard: Any, offset: int) -> int:
        limit = Partition.limit
        Partition.limit = lambda self, isolation: limit(self, Isolation.UNCOMMITTED)  # type: ignore[method-assign]
        try:
            return replay(partition, shard, offset)
        finally:
            Partition.limit = limit  # type: ignore[method-assign]

    runtime.replay_from = read


def read_above_the_watermark() -> None:
    """Readers get what the leader has."""
    limit = Partition.limit

    def beyond(self: Partition, isolation: Isolation) -> int:
        return limit(self, Isolation.LOG_END if isolation == Isolation.UNCOMMITTED else isolation)

    Partition.limit = beyond  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {
    "hw-truncation": truncate_to_the_watermark,
    "no-epoch-check": check_no_epoch,
    "early-ack": acknowledge_early,
    "stale-isr": believe_a_stale_isr,
    "load-to-hw": load_to_the_watermark,
    "read-above-hw": read_above_the_watermark,
}


def seeds_until_found(name: str, seeds: list[int], jobs: int = 1) -> tuple[int, str] | None:
    """How many seeds it took, and what was found; None if nothing was."""
    for tried, outcome in enumerate(outcomes(seeds, jobs, PLANTED[name]), 1):
        if outcome.failure == DIED:
            raise RuntimeError(f"{name}: the bug cannot be planted any more")
        if outcome.failure:
            return tried, f"seed {outcome.seed}: {outcome.failure.strip().splitlines()[-1]}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=sorted(PLANTED))
    parser.add_argument("seeds", nargs="?", type=seeds_of, default=seeds_of(_SEEDS))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.sim.planted", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})
    warm_up()
    missed = 0
    for name in [options.name] if options.name else PLANTED:
        found = seeds_until_found(name, options.seeds, options.jobs)
        missed += found is None
        told = (
            f"not found in {len(options.seeds)} seeds" if found is None else f"{found[0]} seeds; {found[1]}"
        )
        print(f"{name}: {told}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
