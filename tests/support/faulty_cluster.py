"""A cluster of processes whose network can be cut: `anabranch cluster up` on a ZooKeeper of its own.

    with FaultyCluster(folder) as cluster:
        cluster.network.isolate(3)
        cluster.zookeeper.kill(); cluster.zookeeper.start()

Brokers reach each other and ZooKeeper through the proxies of `network`; clients reach them directly.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster_network import ZOOKEEPER, Network
from tests.support.local_cluster import LocalCluster
from tests.support.zookeeper import ZooKeeperServer

MOST_BROKERS = 4


class FaultyCluster(LocalCluster):
    def __init__(self, folder: Path, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, brokers, settings)
        self._brokers = brokers
        self.zookeeper = ZooKeeperServer(folder / "zookeeper")
        port = int(self.zookeeper.address.rpartition(":")[2])
        self.network = Network(self.data, port, range(1, MOST_BROKERS + 1))
        self._command += ["--zookeeper", self.network.zookeeper]

    def start(self) -> None:
        for broker in range(1, MOST_BROKERS + 1):
            place = self.data / f"broker-{broker}"
            place.mkdir(parents=True)
            lines = (f"{name}={value}\n" for name, value in self.network.settings(broker).items())
            (place / "broker.properties").write_text("".join(lines))
        self.network.open()
        self.network.connect(ZOOKEEPER, *range(1, self._brokers + 1))
        self.zookeeper.start()
        super().start()

    def stop(self) -> None:
        try:
            self.network.heal()
            super().stop()
        finally:
            self.zookeeper.kill()
            self.network.close()

    def _others(self) -> list[int]:
        return [self.zookeeper.ready["server_pid"]]
