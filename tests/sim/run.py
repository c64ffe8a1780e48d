"""One simulated run: a cluster, its clients and its faults, all from a seed; and many of them.

    python -m tests.sim.run 17            one seed, with its trace if it fails
    python -m tests.sim.run 1..1000       many, each in a process of its own
      --trace                             what happened, also if all was well
      --plant NAME                        with a bug (tests/sim/planted.py)
      --jobs 4                            so many at a time

Strings hash alike in all of these processes, or sets of them would be in another order each time.
"""

import argparse
import asyncio
import gc
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from math import inf
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Any, NamedTuple

from anabranch.base import seldom
from anabranch.client.destinations import TopicPartition
from tests.sim.checks import Checks
from tests.sim.clients import Clients
from tests.sim.cluster import SimCluster
from tests.sim.groups import GroupHistory, Member
from tests.sim.history import History
from tests.sim.nemesis import Nemesis
from tests.sim.transactions import Transactor
from tests.sim.world import SimWorld, Traced

_LOOK_S = 0.1
_kept: list[Any] = []
_RECOVERY_S = 180.0
DIED = "the process died"


class Outcome(NamedTuple):
    seed: int
    failure: str
    trace: list[str]
    simulated_s: float
    took_s: float
    acknowledged: int
    handles: int
    faults: dict[str, int]
    digest: str


class Scenario:
    """What a seed stands for."""

    def __init__(self, seed: int, most_s: float = inf) -> None:
        self.world = SimWorld(seed)
        self.random = random = self.world.random("scenario")
        self.is_durable = random.random() < 0.5
        self.partitions = random.randint(1, 3)
        self.producers = random.randint(1, 2)
        self.lasts_s = min(most_s, random.choice((10.0, 20.0, 40.0)))
        settings = {
            "replica.fetch.wait.max.ms": random.choice(("50", "500", "500", "500")),
            "replica.high.watermark.checkpoint.interval.ms": random.choice(("500", "5000")),
            "log.roll.ms": random.choice(("2000", "604800000")),
            "log.flush.offset.checkpoint.interval.ms": random.choice(("1000", "60000")),
        }
        if self.is_durable:
            settings["log.flush.interval.messages"] = "1"
        self.cluster = SimCluster(self.world, settings)
        self.checks = Checks(self.world, self.cluster)
        self.history = History()
        places = [TopicPartition("orders", index) for index in range(self.partitions)]
        self.group = GroupHistory("readers", places)
        self.transactors = random.choice((0, 0, 1, 2))
        self.members = random.choice((0, 0, 2, 3))
        self.nemesis = Nemesis(
            self.world, self.cluster, self.world.random("nemesis"), is_durable=self.is_durable
        )

    async def run(self) -> None:
        world, cluster = self.world, self.cluster
        beside = [self._beside(world.tick())]
        await cluster.start()
        await cluster.create("orders", self.partitions)
        clients = Clients(world, cluster, self.history)
        clients.start("orders", self.partitions, self.producers)
        clients.writers += [
            Transactor(world, cluster, f"t{number}", list(clients.readers), self.history)
            for number in range(self.transactors)
        ]
        members = [Member(world, cluster, f"m{number}", self.group) for number in range(self.members)]
        beside += [self._beside(self._look()), self._beside(cluster.revive())]
        await self.nemesis.run(self.lasts_s)
        world.say("-", "heals")
        await cluster.heal()
        await clients.finish()
        for member in members:
            member.is_over = True
        await cluster.until(lambda: all(one.is_done for one in members), "a member does not come to an end")
        await cluster.spread()
        await cluster.until(self.checks.is_settled, "the replicas do not become the same", _RECOVERY_S)
        self.checks.look()
        await clients.check()
        for task in beside:
            task.cancel()

    def _beside(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """What goes on until all is over; if it ends before, that is a failure."""

        async def do() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001  # the first is the one to tell of
                self.world.failed(error)

        return asyncio.ensure_future(do())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self.checks.look()


def run(seed: int, most_s: float = inf) -> Outcome:
    """In a process that then ends: what the dead of a simulation hold must not be let go."""
    began = time.process_time()
    gc.disable()  # or it would choose when what was left alone ends
    logging.disable(logging.NOTSET)
    scenario = Scenario(seed, most_s)
    _kept.append(scenario)
    world = scenario.world
    root = logging.getLogger("anabranch")
    root.setLevel(logging.INFO)
    root.propagate = False
    root.handlers[:] = [Traced(world)]
    seldom.time = SimpleNamespace(monotonic=world.loop.time)  # or lines come by the time that the run takes
    asyncio.set_event_loop(world.loop)
    failure = ""
    try:
        world.loop.run_until_complete(scenario.run())
    except BaseException as error:  # noqa: BLE001  # all of them are told
        if world.failure is None:
            world.failure = error
    if world.failure is not None:
        failure = "".join(traceback.format_exception(world.failure))
        inner = world.failure
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        failure += f"{type(inner).__name__}: {inner}"
    return Outcome(
        seed,
        failure,
        list(world.trace),
        world.loop.time(),
        time.process_time() - began,
        scenario.history.acknowledged,
        world.loop.handles,
        scenario.nemesis.counts,
        world.digest.hexdigest()[:16],
    )


# --- many


def warm_up() -> None:
    """Have all processes begin with what a run imports and compiles."""
    run(0, most_s=1.0)
    gc.freeze()


def outcomes(seeds: list[int], jobs: int, prepare: Callable[[], None] = lambda: None) -> Iterator[Outcome]:
    """Of each seed, in a process of its own, as they come."""
    waiting = list(reversed(seeds))
    running: dict[Connection, tuple[int, int]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            seed = waiting.pop()
            ours, theirs = Pipe(duplex=False)
            child = os.fork()
            if not child:
                _in_child(seed, theirs, prepare)
            theirs.close()
            running[ours] = (child, seed)
        for ready in wait(list(running)):
            assert isinstance(ready, Connection)
            child, seed = running.pop(ready)
            try:
                outcome = ready.recv()
            except EOFError:
                outcome = Outcome(seed, DIED, [], 0, 0, 0, 0, {}, "")
            ready.close()
            os.waitpid(child, 0)
            yield outcome


def _in_child(seed: int, to: Connection, prepare: Callable[[], None]) -> Any:
    try:
        prepare()
        to.send(run(seed))
        to.close()
    except BaseException:  # noqa: BLE001  # the parent is told by the pipe's end
        traceback.print_exc()
    finally:
        os._exit(0)


def seeds_of(text: str) -> list[int]:
    first, _, last = text.partition("..")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", type=seeds_of)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.sim.run", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    warm_up()
    failed, simulated_s, took_s, acknowledged = 0, 0.0, 0.0, 0
    for outcome in outcomes(options.seeds, options.jobs):
        simulated_s += outcome.simulated_s
        took_s += outcome.took_s
        acknowledged += outcome.acknowledged
        if outcome.failure:
            failed += 1
        if outcome.failure or options.trace:
            tell(outcome, 4000 if options.trace else 100)
        elif options.verbose:
            print(f"seed {outcome.seed}: {outcome.simulated_s:.0f} s in {outcome.took_s:.1f} s", flush=True)
    each = (
        f"{simulated_s:.0f} s simulated in {took_s:.1f} s, {simulated_s / max(took_s, 1e-9):.0f} per second"
    )
    print(f"{len(options.seeds)} seeds, {failed} failed; {each}; {acknowledged} records acknowledged")
    return 1 if failed else 0


def tell(outcome: Outcome, most: int = 100) -> None:
    print("\n".join(outcome.trace[-most:]))
    print(
        f"seed {outcome.seed}: {outcome.simulated_s:.1f} s in {outcome.took_s:.2f} s, "
        f"{outcome.handles} handles, {outcome.acknowledged} acknowledged, "
        f"faults {outcome.faults}, digest {outcome.digest}"
    )
    if outcome.failure:
        print(outcome.failure)
        print(f"seed {outcome.seed} failed; again: make sim SEEDS={outcome.seed}", flush=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # without letting go of what the dead hold
