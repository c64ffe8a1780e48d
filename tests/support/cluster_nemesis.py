"""Nemesis of a cluster of processes: one fault after the other, some two at a time, from a seed.

    nemesis = Nemesis(cluster, faults, seed)
    nemesis.strike()            # something happens, and is over again; what, is said

Whom it hits is chosen by what they are at that moment: the leader of a partition, one of its followers, the
controller, or anybody.
"""

import random
import time
from collections.abc import Callable

from tests.support.cluster_faults import Faults
from tests.support.cluster_network import ZOOKEEPER
from tests.support.faulty_cluster import FaultyCluster

_LONGEST_S = 16.0
"""Longer than a broker's session, and than a follower may lag."""

Undo = Callable[[], object]


def _nothing() -> None:
    """It is over by itself."""


class Nemesis:
    def __init__(
        self, cluster: FaultyCluster, faults: Faults, topic: str, partitions: int, seed: int
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._topic = topic
        self._partitions = partitions
        self._chance = random.Random(seed)
        self.standstills: list[float] = []
        """When a broker may have been cut off from the others for longer than a session."""
        self._zookeeper_is_down = False
        self._down: set[int] = set()
        """Brokers that do not run."""
        self._with_another: list[Callable[[], tuple[str, Undo]]] = [
            self._kill,
            self._kill,
            self._stop,
            self._pause,
            self._pause,
            self._expire,
            self._zookeeper,
            self._cut,
            self._cut,
            self._isolate,
            self._isolate,
            self._from_zookeeper,
            self._full_disk,
            self._read_only_disk,
        ]
        self._alone = [self._kill_all, self._restart, self._wipe, self._elect]
        self._in_the_end: list[Undo] = []
        """A broker that starts waits for ZooKeeper, so that must be back before."""

    def strike(self) -> str:
        """Do something, and undo it after a while.  What it was."""
        chance = self._chance
        if chance.random() < 0.2:
            kinds = [chance.choice(self._alone)]
        else:
            kinds = chance.sample(self._with_another, 2 if chance.random() < 0.4 else 1)
        done, undone = [], []
        for kind in kinds:
            what, undo = kind()
            done.append(what)
            undone.append(undo)
            time.sleep(chance.choice((0.0, chance.uniform(0, 3))))
        hold_s = chance.choice((chance.uniform(0, 2), chance.uniform(0, _LONGEST_S)))
        time.sleep(hold_s)
        self.standstills.append(time.monotonic())
        chance.shuffle(undone)
        for undo in undone + self._in_the_end:
            undo()
        self._in_the_end.clear()
        self._down.clear()
        return f"{' and '.join(done)}, for {hold_s:.1f} s"

    def _whom(self) -> tuple[str, int]:
        """Of those that run."""
        view = self._faults.view()
        partition = self._chance.randrange(self._partitions)
        leader = view.leader(self._topic, partition)
        follower = self._chance.choice(view.followers(self._topic, partition))
        roles = {"leader": leader, "follower": follower, "controller": view.controller}
        role = self._chance.choice(sorted(roles))
        if roles[role] in {*self._down, *self._faults.paused, -1}:
            left = sorted(set(self._faults.brokers) - self._down - self._faults.paused.keys())
            return "broker", self._chance.choice(left)
        return role, roles[role]

    # --- processes

    def _kill(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        self._faults.kill(broker)
        self._down.add(broker)
        return f"{role} {broker} killed", _nothing

    def _kill_all(self) -> tuple[str, Undo]:
        for broker in self._faults.brokers:
            self._faults.kill(broker)
        return "all killed", _nothing

    def _stop(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        self._cluster.ask("kill", f"broker-{broker}")
        self._down.add(broker)
        self._in_the_end.append(lambda: self._cluster.ask("restart", f"broker-{broker}"))
        return f"{role} {broker} killed and away", _nothing

    def _restart(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        self._cluster.ask("restart", f"broker-{broker}")
        return f"{role} {broker} restarted", _nothing

    def _pause(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        self._faults.pause(broker)
        return f"{role} {broker} paused", lambda: self._faults.resume(broker)

    # --- ZooKeeper

    def _expire(self) -> tuple[str, Undo]:
        if self._zookeeper_is_down:
            return "nothing", _nothing
        role, broker = self._whom()
        self._faults.expire_session(broker)
        return f"session of {role} {broker} expired", _nothing

    def _zookeeper(self) -> tuple[str, Undo]:
        self._cluster.zookeeper.kill()
        self._zookeeper_is_down = True
        return "ZooKeeper killed", self._start_zookeeper

    def _start_zookeeper(self) -> None:
        self._cluster.zookeeper.start()
        self._zookeeper_is_down = False

    # --- network

    def _cut(self) -> tuple[str, Undo]:
        one, other = self._chance.sample(self._faults.brokers, 2)
        is_both, reset = self._chance.random() < 0.5, self._chance.random() < 0.3
        cut = self._cluster.network.part if is_both else self._cluster.network.cut
        cut(one, other, reset=reset)
        ways = "between" if is_both else "from"
        return f"network cut {ways} {one} and {other}{', reset' * reset}", self._cluster.network.heal

    def _isolate(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        zookeeper, reset = self._chance.random() < 0.5, self._chance.random() < 0.3
        self._cluster.network.isolate(broker, zookeeper=zookeeper, reset=reset)
        what = f"{role} {broker} isolated{', from ZooKeeper, too' * zookeeper}{', reset' * reset}"
        return what, self._cluster.network.heal

    def _from_zookeeper(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        reset = self._chance.random() < 0.3
        self._cluster.network.part(broker, ZOOKEEPER, reset=reset)
        return f"{role} {broker} cut from ZooKeeper{', reset' * reset}", self._cluster.network.heal

    # --- disks, and what operators do

    def _full_disk(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        return f"the disk of {role} {broker} full", self._faults.fill_disk(broker)

    def _read_only_disk(self) -> tuple[str, Undo]:
        role, broker = self._whom()
        free = self._faults.read_only_disk(broker)
        return ("nothing", _nothing) if free is None else (f"the disk of {role} {broker} read-only", free)

    def _wipe(self) -> tuple[str, Undo]:
        self._faults.until(lambda view: view.is_whole)
        role, broker = self._whom()
        self._faults.wipe(broker)
        return f"the disk of {role} {broker} wiped", _nothing

    def _elect(self) -> tuple[str, Undo]:
        self._faults.elect_preferred()
        return "preferred leaders elected", _nothing
