"""Table supervisor: runs the process that maintains tables beside a broker, while a topic is kept as one.

    no table ──── a topic is enabled ───> running ──── it ends by itself ───> waiting, longer each time
        ^                                    │                                       │
        └───── the last one is disabled ─────┴───────────────────────────────────────┘

The process is a child that ends with its standard input, so it does not outlive a broker that is killed.  It
may itself be killed at any moment: what it does is all in the tables' snapshots.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from anabranch.base.backoff import Backoff
from anabranch.base.ids import TopicId
from anabranch.base.processes import Child, Processes
from anabranch.log.config_table import ENABLE
from anabranch.meta.image import ImageChange, TopicImage
from anabranch.server.config_tables import TablesConfig

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 120.0
_SOUND_S = 300.0
"""One that ran so long is started again at once."""
_GRACE_S = 5.0
_MOST_LOG_BYTES = 1 << 20
_LOOK_S = 60.0


def maintainer_command(
    bootstrap: str, http: str | None, roots: Sequence[str], told: TablesConfig
) -> list[str]:
    """`http` is where schemas are; tables are written in `roots` only, whatever a topic's options say."""
    words = [sys.executable, "-m", "anabranch.cli.main", "table", "run", "--with-parent"]
    words += ["--bootstrap", bootstrap, "--master", told.master, "--interval", str(told.interval_ms / 1000)]
    if http is not None:
        words += ["--schema-registry", f"http://{http}"]
    return words + [word for root in roots for word in ("--root", root)]


class Supervisor:
    def __init__(
        self, processes: Processes, command: Sequence[str], log: Path, needs: str = "pyspark"
    ) -> None:
        """`needs` is the module without which there is no point in trying."""
        self._processes = processes
        self._command = command
        self._log = log
        self._needs = needs
        self._enabled: set[TopicId] = set()
        self._changed = asyncio.Event()

    def image_changed(self, change: ImageChange) -> None:
        before = bool(self._enabled)
        for old, new in change.topics:
            if old is not None:
                self._enabled.discard(old.id)
            if new is not None and _is_table(new):
                self._enabled.add(new.id)
        if bool(self._enabled) != before:
            self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if self._enabled and self._can_run():
                await self._keep_running()
            await self._changed.wait()

    def _can_run(self) -> bool:
        try:
            found = find_spec(self._needs) is not None
        except OSError:  # the folders of packages cannot be listed just now: the process will see
            return True
        if not found:
            _log.warning("topics are enabled as tables, and this needs: pip install 'anabranch[spark]'")
        return found

    async def _keep_running(self) -> None:
        """Until no topic is a table any more."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        loop = asyncio.get_running_loop()
        while self._enabled:
            began = loop.time()
            code = await self._run_once()
            if not self._enabled:
                return
            if loop.time() - began > _SOUND_S:
                backoff.reset()
            _log.warning("what maintains tables ended with %s, and is started again; see %s", code, self._log)
            await self._pause(backoff.next_s())

    async def _pause(self, pause_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(pause_s):  # `wait_for` may lose a cancellation to a wake
                await self._changed.wait()
        except TimeoutError:
            return

    async def _run_once(self) -> int | None:
        """Run the process until it ends, or nobody needs it.  Its exit code."""
        try:
            child = await self._start()
        except OSError as error:  # no room, no descriptors, no processes: the broker goes on without tables
            _log.error("what maintains tables cannot be started: %s", error)
            return None
        ended = asyncio.ensure_future(child.wait())
        try:
            while self._enabled and not ended.done():
                self._changed.clear()
                change = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({ended, change}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                self._shorten_log()
        finally:
            await _end(child, ended)
        return child.returncode

    async def _start(self) -> Child:
        self._shorten_log()
        with self._log.open("ab") as log:
            return await self._processes.start(self._command, output=log)

    def _shorten_log(self) -> None:
        """Empty it if it is long.  Whoever writes to it writes at its end, wherever that is."""
        with suppress(OSError):
            if self._log.stat().st_size > _MOST_LOG_BYTES:
                os.truncate(self._log, 0)


def _is_table(topic: TopicImage) -> bool:
    return topic.config.get(ENABLE.name, "").strip().lower() == "true"


async def _end(child: Child, ended: "asyncio.Future[int]") -> None:
    if child.returncode is None:
        child.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(ended), _GRACE_S)
        except TimeoutError:
            child.kill()
    await ended
