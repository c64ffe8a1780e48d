"""The two brokers that are compared: real Apache Kafka, started by the shared scripts, and ours.

Both are a process with `bootstrap`, `pid`, `start`, `stop`; both keep their data in a folder that is
given.  Kafka's jars are downloaded once (Maven) and shared by all runs; ports are chosen free, so that a
Kafka that runs already is not disturbed.

ANABRANCH_SHARED   the folder with bench/kafka/start-kafka.sh (default: `shared` beside the repository)
ANCHORS            where jars are kept (default: ~/.cache/anchors)
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("ANABRANCH_SHARED", ROOT.parent / "shared"))
ANCHORS = Path(os.environ.get("ANCHORS", Path.home() / ".cache" / "anchors"))
KAFKA_VERSION = "4.3.1"
FOR_ONE_BROKER = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""What Kafka must be told to have share groups without two more brokers."""
JARS = ANCHORS / "kafka" / f"libs-{KAFKA_VERSION}"

sys.path.insert(0, str(ROOT))
from tests.support.broker import BrokerProcess  # noqa: E402


class Ours(BrokerProcess):
    name = "anabranch"

    @property
    def pids(self) -> list[int]:
        return [self.pid]


class Kafka:
    name = "kafka"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._anchors = folder
        self._extra = " ".join(f"{key}={value}" for key, value in (settings or {}).items())
        self._scripts = SHARED / "bench" / "kafka"
        self._ports = (free_port(), free_port())
        self.bootstrap = f"127.0.0.1:{self._ports[0]}"
        self.data = folder / "kafka-data" / "node1" / "log"
        self.pid = 0
        if not (self._scripts / "start-kafka.sh").exists():
            sys.exit(f"no start-kafka.sh in {self._scripts}: set ANABRANCH_SHARED")
        folder.mkdir(parents=True, exist_ok=True)
        (ANCHORS / "kafka").mkdir(parents=True, exist_ok=True)
        (folder / "kafka").symlink_to(ANCHORS / "kafka")

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    def start(self, keep: bool = False) -> float:
        """Start it and wait for the first answer.  Returns the seconds from the launch of the JVM."""
        self._run("start-kafka.sh", KEEP="1" if keep else "0")
        folder = self._anchors / "kafka-data"
        self.pid = int((folder / "pids").read_text())
        launched = float((folder / "node1" / "launched").read_text())
        wait_for_metadata(self.bootstrap, 60)
        return time.time() - launched

    def stop(self) -> float:
        started = time.monotonic()
        self._run("stop-kafka.sh")
        return time.monotonic() - started

    def kill(self) -> None:
        self.stop()

    def _run(self, script: str, *arguments: str, **extra: str) -> None:
        environment = dict(os.environ) | {
            "ANCHORS": str(self._anchors),
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_BASE_PORT": str(self._ports[0]),
            "KAFKA_CTRL_PORT": str(self._ports[1]),
            "KAFKA_EXTRA": self._extra,
        }
        command = [str(self._scripts / script), *arguments]
        done = subprocess.run(command, env=environment | extra, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{script} failed: {done.stderr[-2000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_metadata(bootstrap: str, timeout_s: float) -> None:
    """Until a Metadata request (version 4, no topics) is answered."""
    host, port = bootstrap.rsplit(":", 1)
    body = struct.pack(">hhih5si?", 3, 4, 7, 5, b"probe", 0, False)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, int(port)), 1) as connection:
                connection.sendall(struct.pack(">i", len(body)) + body)
                if int.from_bytes(connection.recv(4), "big") > 8:
                    return
        except OSError:
            pass
        time.sleep(0.01)
    sys.exit(f"{bootstrap} does not answer after {timeout_s:.0f} s")
