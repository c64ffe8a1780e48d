"""A broker as people run it: `anabranch standalone` in a process of its own, to stop, kill and start again.

    with BrokerProcess(folder) as broker:
        client = Consumer({"bootstrap.servers": broker.bootstrap, ...})
        client = pulsar.Client(broker.pulsar)       # its REST API is at broker.admin
        broker.kill()
        broker.start()          # the same data, the same ports: clients find it again

It has the same ports for as long as this object lives, and nobody else gets them while it is down.  What
it prints goes to `broker.log` beside the data, and into the error when it does not start.  Its environment
has no ANABRANCH_ variables, which would be settings, save the one that makes encoders strict.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0


def without_settings() -> dict[str, str]:
    """The environment without our variables, save the one that makes encoders strict."""
    return {k: v for k, v in os.environ.items() if k == "ANABRANCH_STRICT" or not k.startswith("ANABRANCH_")}


class BrokerFailed(Exception):
    """The broker did not start, or did not stop when told to.  Has the end of its log."""


def hold_port(holder: object, port: int = 0) -> int:
    """A port that is the holder's: any that is free, or `port`.

    A socket that is bound and does not listen: the kernel gives the port to nobody who asks for any, and the
    broker may listen there, for both say SO_REUSEADDR.  Only Linux has it so; elsewhere the broker chooses.
    """
    if sys.platform != "linux":
        return port
    held = socket.socket()
    weakref.finalize(holder, held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    return int(held.getsockname()[1])


class BrokerProcess:
    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        wrapper: tuple[str, ...] = (),
        port: int = 0,
    ) -> None:
        """`wrapper` is put before the command: a profiler, `strace`."""
        self.data = folder / "data"
        self.log = folder / "broker.log"
        self._ready = folder / "ready.json"
        self._settings = dict(settings or {})
        self._wrapper = wrapper
        self._process: subprocess.Popen[bytes] | None = None
        self._port = hold_port(self, port)
        self._pulsar_port, self._http_port = hold_port(self), hold_port(self)
        self.pid = 0
        self.bootstrap = f"127.0.0.1:{port}" if port else ""
        self.pulsar = ""
        self.admin = ""

    def command(self) -> list[str]:
        program = str(Path(sys.executable).with_name("anabranch"))
        command = [*self._wrapper, program, "standalone", "--data", str(self.data)]
        command += ["--kafka-port", str(self._port), "--ready-file", str(self._ready)]
        command += ["--pulsar-port", str(self._pulsar_port), "--http-port", str(self._http_port)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def start(self) -> float:
        """Start it and wait until it serves.  Returns the seconds that took."""
        started = time.monotonic()
        self.launch()
        self.wait_ready()
        return time.monotonic() - started

    def launch(self) -> None:
        """Start it without waiting."""
        assert self._process is None, "already running"
        self._ready.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=without_settings()
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (ready := self._read_ready()) is None:
            if self._process is None or self._process.poll() is not None:
                self._process = None
                raise BrokerFailed(f"the broker ended at once:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"not ready after {READY_TIMEOUT_S:.0f} s:\n{self.last_lines()}")
            time.sleep(0.005)
        self.bootstrap = str(ready["kafka"])
        self.pid = int(str(ready["pid"]))
        self._port = int(self.bootstrap.rsplit(":", 1)[1])
        if "pulsar" in ready:
            self.pulsar = f"pulsar://{ready['pulsar']}"
            self._pulsar_port = int(self.pulsar.rsplit(":", 1)[1])
        if "http" in ready:
            self.admin = f"http://{ready['http']}"
            self._http_port = int(self.admin.rsplit(":", 1)[1])

    def _read_ready(self) -> dict[str, object] | None:
        try:
            loaded = json.loads(self._ready.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return loaded if isinstance(loaded, dict) else None

    def stop(self) -> float:
        """SIGTERM, and wait for the clean end.  Returns the seconds that took."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what a power cut does to a process."""
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> float:
        if self._process is None:
            return 0.0
        process, self._process = self._process, None
        started = time.monotonic()
        process.send_signal(sign)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(
                f"the broker does not stop after {STOP_TIMEOUT_S:.0f} s:\n{self.last_lines()}"
            ) from None
        if sign == signal.SIGTERM and code != 0:
            raise BrokerFailed(f"the broker ended with code {code}:\n{self.last_lines()}")
        return time.monotonic() - started

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def last_lines(self, count: int = 40) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-count:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
