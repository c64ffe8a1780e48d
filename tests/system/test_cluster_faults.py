"""A cluster of real processes that is hurt under load: clients go on, and all that they were told is so.

One cluster and one load for all tests here: producers that number their records, transactions, readers of
either isolation, groups of each kind (`cluster_load`).  Each test hurts the cluster, then waits until every
client has got on since, and all replicas are in sync again; the last one holds what clients were told against
what is there (`cluster_ending`).

Sessions are short, so that their end is seen.  With ANABRANCH_SOAK=1 there are random faults for half an
hour (ANABRANCH_SOAK_MINUTES), from a seed that is printed (ANABRANCH_SOAK_SEED), on a cluster with defaults.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster_ending import check
from tests.support.cluster_faults import Faults
from tests.support.cluster_load import ORDERS, PARTITIONS, Load
from tests.support.cluster_nemesis import Nemesis
from tests.support.cluster_network import ZOOKEEPER
from tests.support.faulty_cluster import FaultyCluster

SESSION_S = 4.0
SETTINGS = {"broker.session.timeout.ms": f"{SESSION_S * 1000:.0f}", "replica.lag.time.max.ms": "4000"}
MINUTES = float(os.environ.get("ANABRANCH_SOAK_MINUTES", "30"))

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


class Scene:
    def __init__(self, cluster: FaultyCluster, folder: Path, rate: float = 10.0) -> None:
        self.cluster = cluster
        self.faults = Faults(cluster)
        for topic, partitions in PARTITIONS.items():
            self.faults.create(topic, partitions)
        folder.mkdir()
        self.load = Load(cluster.bootstrap, folder, rate)

    @property
    def leader(self) -> int:
        return self.faults.view().leader(ORDERS)

    @property
    def follower(self) -> int:
        return self.faults.view().followers(ORDERS)[0]

    def recovers(self) -> None:
        self.load.goes_on()
        self.faults.until(lambda view: view.is_whole)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("hurt")
    with FaultyCluster(folder, settings=SETTINGS) as cluster:
        scene = Scene(cluster, folder / "journals")
        with scene.load:
            scene.load.goes_on()
            yield scene


def test_a_leader_is_killed(scene: Scene) -> None:
    scene.faults.kill(scene.leader)
    scene.recovers()


def test_the_controller_is_killed_and_a_session_expires(scene: Scene) -> None:
    scene.faults.kill(scene.faults.view().controller)
    scene.faults.until(lambda view: len(view.brokers) == 3)
    scene.faults.expire_session(scene.leader)
    scene.recovers()


def test_a_leader_stands_still_for_longer_than_its_session(scene: Scene) -> None:
    """What it has not acknowledged by then it does not acknowledge as a leader that it was."""
    leader = scene.leader
    scene.faults.pause(leader)
    scene.faults.until(lambda view: view.leader(ORDERS) != leader)
    scene.faults.resume(leader)
    scene.recovers()


def test_zookeeper_is_killed_and_a_follower_with_it(scene: Scene) -> None:
    scene.cluster.zookeeper.kill()
    scene.faults.kill(scene.follower)
    scene.cluster.zookeeper.start()
    scene.recovers()


def test_a_follower_is_not_heard(scene: Scene) -> None:
    """It hears its leader, which hears nothing of it, until it is not in sync any more."""
    leader, follower = scene.leader, scene.follower
    scene.cluster.network.cut(follower, leader)
    scene.faults.until(lambda view: follower not in view.in_sync(ORDERS), leader)
    scene.cluster.network.heal()
    scene.recovers()


def test_a_leader_is_alone(scene: Scene) -> None:
    """Clients reach it, and neither the others nor ZooKeeper do."""
    leader, follower = scene.leader, scene.follower
    scene.cluster.network.isolate(leader, zookeeper=True)
    scene.faults.until(lambda view: view.leader(ORDERS) != leader, follower)
    scene.cluster.network.heal()
    scene.recovers()


def test_the_controller_does_not_reach_zookeeper(scene: Scene) -> None:
    controller = scene.faults.view().controller
    other = next(id for id in scene.faults.brokers if id != controller)
    scene.cluster.network.part(controller, ZOOKEEPER, reset=True)
    scene.faults.until(lambda view: view.controller != controller, other)
    scene.cluster.network.heal()
    scene.recovers()


def test_the_disk_of_a_follower_is_full_then_wiped(scene: Scene) -> None:
    leader, follower = scene.leader, scene.follower
    free = scene.faults.fill_disk(follower)
    scene.faults.until(lambda view: follower not in view.in_sync(ORDERS), leader)
    free()
    scene.recovers()
    scene.faults.wipe(follower)
    scene.recovers()


def test_the_disk_of_a_leader_is_read_only(scene: Scene) -> None:
    """It leads nothing any more, and follows nothing."""
    leader, follower = scene.leader, scene.follower
    free = scene.faults.read_only_disk(leader)
    if free is None:
        pytest.skip("needs root, and a file system with immutable files")
    try:
        scene.faults.until(lambda view: leader not in view.in_sync(ORDERS), follower)
        scene.load.goes_on()
    finally:
        free()
    scene.recovers()


def test_a_rolling_restart(scene: Scene) -> None:
    for broker in scene.faults.brokers:
        scene.cluster.ask("restart", f"broker-{broker}")
        scene.faults.until(lambda view: view.is_whole)
    scene.recovers()


def test_a_broker_is_drained_to_a_new_one(scene: Scene) -> None:
    """It leads, and coordinates; then it is gone for good."""
    old = scene.leader
    new = scene.faults.add()
    scene.faults.drain(old, new)
    scene.load.goes_on()
    scene.cluster.ask("kill", f"broker-{old}")
    scene.faults.forget(old)
    scene.recovers()


def test_what_clients_were_told_is_so(scene: Scene) -> None:
    """The last one here."""
    scene.load.stop()
    check(scene.load)


@pytest.mark.skipif(not os.environ.get("ANABRANCH_SOAK"), reason="half an hour; ANABRANCH_SOAK=1 runs it")
@pytest.mark.timeout(60 * MINUTES + 1800)
def test_random_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("ANABRANCH_SOAK_SEED", random.SystemRandom().randrange(10**6)))
    with FaultyCluster(tmp_path) as cluster:
        scene = Scene(cluster, tmp_path / "journals", rate=30.0)
        nemesis = Nemesis(cluster, scene.faults, ORDERS, PARTITIONS[ORDERS], seed)
        with scene.load as load:
            load.goes_on()
            end = time.monotonic() + 60 * MINUTES
            print(f"ANABRANCH_SOAK_SEED={seed}")
            while time.monotonic() < end:
                began = time.monotonic()
                print(f"{time.strftime('%H:%M:%S')} {nemesis.strike()}", end="", flush=True)
                over = time.monotonic()
                load.goes_on()
                print(f"; all go on after {time.monotonic() - over:.1f} s", flush=True)
                scene.faults.until(lambda view: view.is_whole)
                print(f"  pauses {load.pauses(began)}", flush=True)
        check(load, nemesis.standstills)
        print(f"{load.history.count} records, {load.transactor.committed} transactions")
