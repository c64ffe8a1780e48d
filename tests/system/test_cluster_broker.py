"""`anabranch broker`: brokers on a ZooKeeper; a session that is lost, a folder that joins a cluster."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from anabranch.base.ids import BrokerId
from anabranch.meta import paths
from anabranch.meta.documents import BrokerDocument, decode
from anabranch.meta.session import SessionState
from anabranch.meta.store import Versioned
from anabranch.meta.zookeeper import ZooKeeperStore
from tests.support.broker import BrokerProcess
from tests.support.command import anabranch
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.jvm


class ClusterBroker(BrokerProcess):
    """`anabranch broker` instead of `standalone`."""

    def __init__(self, folder: Path, zookeeper: str, id: int, **settings: str) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, {name.replace("_", "."): value for name, value in settings.items()})
        self._member = ["--id", str(id), "--zookeeper", zookeeper, "--host-id", "here", "--rack", "r1"]

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("standalone")
        return [*command[:at], "broker", *self._member, *command[at + 1 :]]


async def registered(store: ZooKeeperStore, id: int) -> Versioned | None:
    return await store.get(paths.broker(BrokerId(id)))


async def test_a_broker_that_lost_its_session_registers_again(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """It stood still for longer than its session; it serves on under a new epoch."""
    chroot = zookeeper.chroot()
    store = await ZooKeeperStore.connect(chroot, 10_000)
    with ClusterBroker(tmp_path, chroot, 7, broker_session_timeout_ms="2000") as broker:
        before = await registered(store, 7)
        assert before is not None
        told = decode(before.data, BrokerDocument, "")
        assert (told.host_id, told.rack) == ("here", "r1")
        assert broker.bootstrap == f"{told.host}:{told.port}"
        assert told.pulsar is not None
        assert broker.pulsar == f"pulsar://{told.pulsar.host}:{told.pulsar.port}"
        os.kill(broker.pid, signal.SIGSTOP)
        gone = False
        while not gone:
            gone = await registered(store, 7) is None
        os.kill(broker.pid, signal.SIGCONT)
        while (after := await registered(store, 7)) is None:
            continue
        assert after.czxid > before.czxid
        assert after.data == before.data
        anabranch("produce", "t", stdin="a\n", bootstrap=broker.bootstrap)
    await store.close()


async def test_a_loop_that_stands_still_loses_its_session(zookeeper: ZooKeeperServer) -> None:
    """Its client's threads live on, and would keep the session of a broker that serves nobody."""
    chroot = zookeeper.chroot()

    async def until_gone() -> None:
        other = await ZooKeeperStore.connect(chroot, 10_000)
        while await other.get("/mine") is not None:
            continue
        await other.close()

    store = await ZooKeeperStore.connect(chroot, 2_000)
    await store.create("/mine", b"", ephemeral=True)
    before = store.session.id
    watching = threading.Thread(target=asyncio.run, args=(until_gone(),))
    watching.start()
    watching.join(60)  # the loop's own thread
    assert not watching.is_alive()
    await until(lambda: store.session.id != before and store.session.state is SessionState.CONNECTED)
    await store.create("/mine", b"", ephemeral=True)
    await store.close()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    missing = anabranch("broker", "--id", "1", exit_code=2)
    assert "a broker of a cluster needs --zookeeper HOST:PORT, --data DIR" in missing.stderr
    told = anabranch("standalone", "--set", "zookeeper.connect=z:1", "--data", str(tmp_path), exit_code=2)
    assert "anabranch broker" in told.stderr


async def test_a_standalone_folder_becomes_the_first_broker_of_a_cluster(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    chroot = zookeeper.chroot()
    for name in ("one", "three"):
        (tmp_path / name).mkdir()
    alone = BrokerProcess(tmp_path / "one")
    alone.start()
    anabranch("produce", "orders", stdin="a\nb\n", bootstrap=alone.bootstrap)
    in_use = anabranch("cluster", "adopt", "--data", str(alone.data), "--zookeeper", chroot, exit_code=1)
    assert "in use by process" in in_use.stderr
    alone.stop()
    adopted = anabranch("cluster", "adopt", "--data", str(alone.data), "--zookeeper", chroot)
    assert f"anabranch broker --id 1 --zookeeper {chroot} --data {alone.data}" in adopted.stdout
    refused = anabranch("standalone", "--data", str(alone.data), "--kafka-port", "0", exit_code=1)
    assert f"anabranch broker --id 1 --zookeeper {chroot}" in refused.stderr
    again = anabranch("cluster", "adopt", "--data", str(alone.data), "--zookeeper", chroot, exit_code=1)
    assert "is in ZooKeeper" in again.stderr
    with (
        ClusterBroker(tmp_path / "one", chroot, 1) as first,
        ClusterBroker(tmp_path / "two", chroot, 2) as second,
    ):
        assert anabranch("consume", "orders", bootstrap=second.bootstrap).stdout == "a\nb\n"
        anabranch("produce", "orders", stdin="c\n", bootstrap=second.bootstrap)
        assert anabranch("consume", "orders", bootstrap=first.bootstrap).stdout == "a\nb\nc\n"
    other = BrokerProcess(tmp_path / "three")
    other.start()
    other.stop()
    taken = anabranch("cluster", "adopt", "--data", str(other.data), "--zookeeper", chroot, exit_code=1)
    assert "choose another chroot" in taken.stderr


def test_a_broker_of_a_cluster_is_no_standalone(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with ClusterBroker(tmp_path, zookeeper.chroot(), 1) as broker:
        pass
    refused = anabranch("standalone", "--data", str(broker.data), "--kafka-port", "0", exit_code=1)
    assert "belongs to cluster" in refused.stderr
