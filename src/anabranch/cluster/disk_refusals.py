"""Disk refusals: a broker whose disk takes nothing (full, read-only) leads no more where another can.

    a log cannot be opened or written ──────────────────────> /brokers/2 gives_way ─> others are elected
    nothing was refused for 10 s, and a file can be written ─> /brokers/2 does not

It leads again as one that was away does: once it is in sync, where it is the preferred leader.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from anabranch.base.disk import Disk
from anabranch.base.errors import Conflict, DiskFull, NotFound, Unavailable
from anabranch.base.ids import BrokerId
from anabranch.cluster.registration import Registration
from anabranch.meta.image import ClusterImage

log = logging.getLogger(__name__)

_QUIET_S = 10.0
_AGAIN_S = 1.0
_REASON = "its disk takes nothing"
_PROBE = "probe.tmp"
_PROBE_BYTES = 1 << 20


class DiskRefusals:
    def __init__(
        self,
        node_id: BrokerId,
        disk: Disk,
        data: Path,
        registration: Registration,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._disk = disk
        self._probe = data / _PROBE
        self._registration = registration
        self._image = image
        self._node_id = node_id
        self._refused = asyncio.Event()
        self._why = ""
        disk.handles.on_refusal = self._was_refused

    async def run(self) -> None:
        while True:
            await self._refused.wait()
            if self._image().brokers.keys() <= {self._node_id}:
                self._refused.clear()  # nobody else could
                continue
            log.warning("broker %d: leads no more where others can: %s", self._node_id, self._why)
            await self._insist(self._registration.give_way)
            while self._refused.is_set() or not self._is_writable():
                self._refused.clear()
                await asyncio.sleep(_QUIET_S)
            log.info("broker %d: its disk can be written, and it may lead again", self._node_id)
            await self._insist(self._registration.lead_again)

    def _was_refused(self, error: Exception) -> None:
        self._why = str(error)
        self._refused.set()

    def _is_writable(self) -> bool:
        try:
            self._disk.write_whole(self._probe, bytes(_PROBE_BYTES), sync=False)
            self._disk.remove(self._probe)
        except (DiskFull, OSError):
            return False
        return True

    async def _insist(self, tell: Callable[[BrokerId, str], Awaitable[None]]) -> None:
        """Tell the others, who hear it at the latest when the broker registers again."""
        with suppress(NotFound):
            while True:
                try:
                    return await tell(self._node_id, _REASON)
                except (Conflict, Unavailable) as error:
                    log.info("broker %d: cannot tell the others about its disk yet: %s", self._node_id, error)
                    await asyncio.sleep(_AGAIN_S)
