"""Member: one process of a local cluster, and what becomes of it.

    starting ──> running <──> paused
        ^           │ it ends by itself                      by `kill` it is killed, by `down` stopped,
        └─ waiting <┘ longer each time                       and stays so until `restart`

A member dies with the supervisor: what is left behind would hold ports and folders that nobody knows of.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from enum import Enum
from typing import Any

from anabranch.base.backoff import Backoff
from anabranch.base.errors import Invalid, Unavailable
from anabranch.cli.local_cluster.plan import Planned

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_SOUND_S = 30.0
"""One that served so long is started again as after its first death."""
_GRACE_S = 30.0
_LOOK_S = 0.02
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    KILLED = "killed"
    STOPPED = "stopped"


class Member:
    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.state = State.STOPPED
        self.restarts = 0
        """How often it was started after the first time."""
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = asyncio.Event()
        self._unwanted = State.STOPPED  # what it is once nobody wants it
        self._is_busy = False
        self._hurry = asyncio.Event()
        self._moved = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def row(self) -> dict[str, Any]:
        """As `status` tells it."""
        planned = self.planned
        return {
            "role": planned.role,
            "id": planned.id,
            "pid": self.pid,
            "state": self.state.value,
            "ports": dict(planned.ports),
            "folder": str(planned.folder),
            "log": str(planned.log),
            "restarts": self.restarts,
        }

    # --- what it is told

    def want(self) -> None:
        """Start it, and keep it running."""
        self._wanted.set()

    async def serving(self) -> None:
        """Return once it serves.  Unavailable if it ended instead, or is not wanted any more."""
        while self.state is not State.RUNNING:
            if not self._wanted.is_set():
                raise Unavailable(f"{self.planned.id} was told to end before it served")
            if self.state is State.WAITING:
                raise Unavailable(
                    f"{self.planned.id} does not start; the end of {self.planned.log}:\n{self._tail()}"
                )
            await self._moved.wait()

    async def kill(self) -> None:
        """kill -9, and leave it so."""
        self._want_not(State.KILLED)
        self._send(signal.SIGKILL)
        await self._until(State.KILLED)

    async def stop(self) -> None:
        """Let it come to its end; kill -9 if it does not."""
        self._want_not(State.STOPPED)
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)
        try:
            async with asyncio.timeout(_GRACE_S):
                await self._until(State.STOPPED)
        except TimeoutError:
            log.warning("%s: did not stop within %d s and is killed", self.planned.id, _GRACE_S)
            self._send(signal.SIGKILL)
            await self._until(State.STOPPED)

    async def restart(self) -> None:
        """Stop it if it is there, and start it; returns when it serves."""
        await self.stop()
        self.want()
        await self._until(State.STARTING, State.RUNNING, State.WAITING)
        await self.serving()

    def pause(self) -> None:
        if self.state is not State.RUNNING:
            raise Invalid(f"{self.planned.id} is {self.state.value}; only what is running can be paused")
        self._send(signal.SIGSTOP)
        self._become(State.PAUSED)

    def resume(self) -> None:
        if self.state is not State.PAUSED:
            raise Invalid(f"{self.planned.id} is {self.state.value}, not paused")
        self._send(signal.SIGCONT)
        self._become(State.RUNNING)

    # --- what it does

    async def run(self) -> None:
        """Keep it running while it is wanted, forever."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        loop = asyncio.get_running_loop()
        is_first = True
        while True:
            await self._wanted.wait()
            self._hurry.clear()
            self.restarts += not is_first
            is_first = False
            began = loop.time()
            ended = await self._run_once()
            if not self._wanted.is_set():
                self._become(self._unwanted)
                continue
            if loop.time() - began > _SOUND_S:
                backoff.reset()
            pause_s = backoff.next_s()
            log.warning(
                "%s: ended by itself, %s; it is started again in %.1f s; its log: %s",
                self.planned.id,
                ended,
                pause_s,
                self.planned.log,
            )
            self._become(State.WAITING)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()

    async def _run_once(self) -> str:
        """Start it and wait for its end; what that was."""
        self._is_busy = True
        self._become(State.STARTING)
        try:
            process = self._process = await self._launch()
        except OSError as error:
            self._is_busy = False
            return f"cannot be started: {error}"
        log.info("%s: started, process %d", self.planned.id, process.pid)
        if not self._wanted.is_set():
            self._send(signal.SIGKILL)
        ready = asyncio.ensure_future(self._notice_ready())
        try:
            code = await process.wait()
        finally:
            ready.cancel()
            self._send(signal.SIGKILL)  # what it has left behind
            self._process = None
            self._is_busy = False
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def _launch(self) -> asyncio.subprocess.Process:
        planned = self.planned
        planned.place.mkdir(parents=True, exist_ok=True)
        planned.ready.unlink(missing_ok=True)
        with planned.log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *planned.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is the supervisor's to hear
                preexec_fn=_die_with_parent,
            )

    async def _notice_ready(self) -> None:
        while True:
            with suppress(OSError, ValueError):
                json.loads(self.planned.ready.read_bytes())
                break
            await asyncio.sleep(_LOOK_S)
        if self.state is State.STARTING:
            log.info("%s: serves", self.planned.id)
            self._become(State.RUNNING)

    def _want_not(self, unwanted: State) -> None:
        self._wanted.clear()
        self._unwanted = unwanted
        self._hurry.set()
        if not self._is_busy:
            self._become(unwanted)

    def _send(self, number: signal.Signals) -> None:
        """What is told to end may tell its own children; all else is for them as well."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            if number is signal.SIGTERM:
                self._process.send_signal(number)
            else:
                os.killpg(self._process.pid, number)

    async def _until(self, *states: State) -> None:
        while self.state not in states:
            await self._moved.wait()

    def _become(self, state: State) -> None:
        self.state = state
        self._moved.set()
        self._moved = asyncio.Event()

    def _tail(self, lines: int = 5) -> str:
        try:
            said = self.planned.log.read_text(errors="replace").splitlines()[-lines:]
        except OSError:
            return ""
        return "\n".join(f"  {line}" for line in said)


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
