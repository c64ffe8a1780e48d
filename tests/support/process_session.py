"""A command and everything it starts: one session of processes, to find and to kill with -9.

    session = ProcessSession(["spark-class", ...], log)
    session.start()
    session.kill_those(b"CoarseGrainedExecutorBackend")     # by a word of their command lines
    session.kill()                                          # all of them

Java starts Python and Python forks; some make process groups of their own, but all stay in the session.
"""

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self


class Served(ABC):
    """What is started for a `with`, and stopped also if it does not come up."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ProcessSession:
    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        """What it prints goes to `log`; `environment` is beside what is there already."""
        self._command = command
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.log = log

    def start(self) -> None:
        assert self._process is None, "already started"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """The command and everything that came of it."""
        if self._process is not None:
            # Until nobody is left: one that was seen may have started another before it died.
            while members := self._members():
                for pid in members:
                    _kill(pid)
                self._process.poll()
            self._process.wait()
            self._process = None

    def kill_those(self, word: bytes) -> int:
        """Those that have `word` in their command line.  How many there were."""
        found = [pid for pid in self._members() if word in _command_line(pid)]
        for pid in found:
            _kill(pid)
        return len(found)

    def _members(self) -> list[int]:
        """All that are alive."""
        if self._process is None:
            return []
        listed = subprocess.run(
            ["ps", "-o", "pid=,stat=", "-s", str(self._process.pid)], capture_output=True, text=True
        )
        rows = [line.split() for line in listed.stdout.splitlines()]
        return [int(pid) for pid, state in rows if not state.startswith("Z")]

    def last_lines(self, count: int = 40) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-count:])


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
