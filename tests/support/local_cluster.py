"""A cluster of several processes: `anabranch cluster up`, and its other commands.

    with LocalCluster(folder, brokers=3) as cluster:
        client = Consumer({"bootstrap.servers": cluster.bootstrap, ...})
        cluster.tell("kill", "broker-1")            # and pause, resume, restart, add, down
        cluster.row("broker-1")["pid"]

It has its own ZooKeeper and the ports that are free; what it prints goes to `up.log` beside its data.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch.cli.local_cluster.control import ask
from tests.support.broker import STOP_TIMEOUT_S, without_settings
from tests.support.command import PROGRAM, anabranch, from_json
from tests.support.process_session import Served

READY_TIMEOUT_S = 120.0


class LocalCluster(Served):
    def __init__(self, folder: Path, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.data = folder / "cluster"
        self.log = folder / "up.log"
        self._ready_file = folder / "ready.json"
        self._command = [PROGRAM, "cluster", "up", "--brokers", str(brokers), "--kafka-port", "0"]
        self._command += ["--data", str(self.data), "--ready-file", str(self._ready_file)]
        for name, value in (settings or {}).items():
            self._command += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        self.start_computed_s = 0.0
        """What the processes took of the processors until all of them served."""

    @property
    def bootstrap(self) -> str:
        return str(self.ready["kafka"])

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=without_settings()
            )
        self.ready = wait_for_json(self._ready_file, self._process, self.log)
        pids = [self._process.pid, *(row["pid"] for row in self.ready["processes"]), *self._others()]
        self.start_computed_s = sum(map(_computed_s, pids))

    def _others(self) -> list[int]:
        """Processes that serve it and are not its children."""
        return [json.loads((self.data / "zookeeper" / "ready.json").read_text())["server_pid"]]

    def stop(self) -> None:
        """SIGTERM, and wait for the clean end of all."""
        if self._process is not None:
            self._process.terminate()
            self.ended()

    def ended(self) -> int:
        """Its exit code, once it has one."""
        assert self._process is not None
        process, self._process = self._process, None
        try:
            return process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()

    def tell(self, verb: str, *arguments: str, exit_code: int = 0) -> "subprocess.CompletedProcess[str]":
        return anabranch("cluster", verb, *arguments, "--data", str(self.data), exit_code=exit_code)

    def ask(self, verb: str, id: str | None = None) -> list[dict[str, Any]]:
        """As `tell`, without a process for it; the rows that it would show."""
        here = Path.cwd()
        try:
            return ask(self.data, verb, id)
        finally:
            os.chdir(here)

    def rows(self) -> dict[str, dict[str, Any]]:
        """What `status` says, by id."""
        return {row["id"]: row for row in from_json(self.tell("status", "--json"))}

    def row(self, id: str) -> dict[str, Any]:
        return self.rows()[id]

    def until(self, id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The row of `id`, once that is so."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not holds(row := self.row(id)):
            assert time.monotonic() < deadline, row
        return row

    def told(self, id: str) -> dict[str, Any]:
        """The ready file of a process: its addresses and its pid, from when it serves on."""
        file = self.data / id / "ready.json"
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            with suppress(OSError, json.JSONDecodeError):
                told: dict[str, Any] = json.loads(file.read_text())
                return told
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def log_of(self, id: str) -> str:
        return (self.data / id / "log.txt").read_text()


def wait_for_json(file: Path, process: "subprocess.Popen[bytes]", log: Path | None = None) -> dict[str, Any]:
    """What the ready file of `process` says, once it is there."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not file.exists():
        assert process.poll() is None, log and log.read_text()
        assert time.monotonic() < deadline, log and log.read_text()
        time.sleep(0.01)
    ready: dict[str, Any] = json.loads(file.read_text())
    return ready


def _computed_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
