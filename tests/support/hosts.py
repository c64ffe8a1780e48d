"""The partitions of a broker alone, for tests of what stands below the cluster: nobody looks after them."""

from pathlib import Path

from anabranch.base.clock import Clock
from anabranch.base.disk import DirectDisk, Disk
from anabranch.base.executors import thread_pool
from anabranch.base.ids import BrokerId
from anabranch.partition.host import PartitionHost
from tests.support.logs import SetClock


def a_host(data: Path, clock: Clock | None = None, disk: Disk | None = None) -> PartitionHost:
    return PartitionHost(disk or DirectDisk(), clock or SetClock(), data, BrokerId(1), thread_pool)
