"""Acknowledgements that come when a test says so.

held = HeldAcknowledgements(host)     before the partitions are opened that it is to hold
held.waiting                          those that have not been given yet, the oldest first
held.release()                        all of them; `release(2)` the oldest two
held.refuse(NotOwner("..."))
held.is_holding = False               what is appended from now on is acknowledged at once
"""

import asyncio

from anabranch.partition.host import PartitionHost
from anabranch.partition.partition import Partition


class HeldAcknowledgements:
    def __init__(self, host: PartitionHost) -> None:
        self.is_holding = True
        self._waiting: list[tuple[Partition, asyncio.Future[None]]] = []
        host.on_change = self._changed

    def _changed(self, partition: Partition) -> "asyncio.Future[None] | None":
        if not self.is_holding:
            return None
        acknowledged = asyncio.get_running_loop().create_future()
        self._waiting.append((partition, acknowledged))
        return acknowledged

    @property
    def waiting(self) -> list["asyncio.Future[None]"]:
        self._waiting = [(partition, one) for partition, one in self._waiting if not one.done()]
        return [one for _, one in self._waiting]

    def release(self, count: int | None = None) -> None:
        for one in self.waiting[:count]:
            one.set_result(None)

    def refuse(self, error: Exception, partition: Partition | None = None) -> None:
        """Those of `partition`, or all."""
        for whose, one in self._waiting:
            if not one.done() and partition in (None, whose):
                one.set_exception(error)
