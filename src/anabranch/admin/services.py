"""Admin services: the node's parts that HTTP handlers may reach, built by `node.py` and nothing else."""

from concurrent.futures import Executor
from dataclasses import dataclass

from anabranch.admin.measured import Measured
from anabranch.partition.host import PartitionHost
from anabranch.partition.upkeep import Upkeep
from anabranch.server.pulsar.services import PulsarServices


@dataclass(slots=True)
class AdminServices:
    pulsar: PulsarServices
    partitions: PartitionHost
    upkeep: Upkeep
    threads: Executor
    """For what takes a request a while."""
    measured: Measured
    web_url: str = ""
    """Where clients find this broker's HTTP, as `http://127.0.0.1:8080`; known once it listens."""
