"""What tests of bad behaviour need: a client that must not notice, and what the broker holds meanwhile.

    with Bystander(broker.bootstrap) as other:
        ...                      # do something terrible
        other.check()            # it has gone on producing and reading all the time

`memory_mb` and `open_files` are read from /proc; `unexpected` are the tracebacks in a broker's log.
"""

import os
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.compat.clients import raw
from tests.support.stalls import Stalls

NOT_LEADER = 6
SLOW_S = 5.0  # the machine is shared with the attack; being held up is longer


class Bystander:
    """A well-behaved client with a topic of its own: writes a record, reads it back, and again."""

    def __init__(self, bootstrap: str, topic: str = "bystander", pause_s: float = 0.01) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._stalls = Stalls()
        self.rounds = 0
        self.slowest_s = 0.0

    def _run(self) -> None:
        try:
            with raw.Connection(self._bootstrap, timeout_s=90, client_id="bystander") as client:
                topic_id = raw.create_topic(client, self._topic)
                while not self._stop.wait(self._pause_s):
                    began = time.monotonic()
                    self._round(client, topic_id)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    self.rounds += 1
        except BaseException as error:  # noqa: BLE001  told by `check`
            self._error = error

    def _round(self, client: raw.Connection, topic_id: object) -> None:
        told = raw.produce(client, self._topic, raw.batch([b"%d" % self.rounds]))
        while told.error_code == NOT_LEADER:  # as clients do; UnregisterBroker has leaders elected
            told = raw.produce(client, self._topic, raw.batch([b"%d" % self.rounds]))
        assert told.error_code == 0, told
        assert told.base_offset == self.rounds, told
        request = raw.fetch_request([(topic_id, [(0, self.rounds)])])
        answer = client.call(raw.FETCH, 16, request)
        part = answer.responses[0].partitions[0]
        assert raw.batches(part.records)[0][0] == self.rounds, part

    def check(self, rounds: int = 5, slow_s: float = SLOW_S) -> None:
        """It has been served until now, and still is."""
        seen, deadline = self.rounds, time.monotonic() + 90
        while self.rounds < seen + rounds and self._error is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._error is not None:
            raise AssertionError("a bystander was harmed") from self._error
        assert self.rounds >= seen + rounds, "a bystander is not served any more"
        longest_s = self._stalls.longest_s
        said = f"a bystander waited {self.slowest_s:.1f} s, the machine stood still for {longest_s:.1f} s"
        assert self.slowest_s < slow_s + longest_s, said

    def __enter__(self) -> Self:
        self._stalls.start()
        self._thread.start()
        deadline = time.monotonic() + 60
        while self.rounds == 0 and self._error is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(100)
        self._stalls.stop()
        if error is None:
            if self._error is not None:
                raise AssertionError("a bystander was harmed") from self._error
            assert self.rounds > 0, "a bystander was never served"


class Requests(raw.Connection):
    """Only writes requests down, to be sent in one's own way."""

    def __init__(self) -> None:
        self.data = b""
        self._next = 1
        self._client_id = "hostile"

    def send_frame(self, body: bytes) -> None:
        self.data += struct.pack(">i", len(body)) + body


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def open_files(pid: int, under: Path | None = None) -> int:
    """Descriptors of a process, all or those of files below a folder."""
    return _descriptors(pid, "" if under is None else str(under))


def _descriptors(pid: int, beginning: str) -> int:
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += os.readlink(entry).startswith(beginning)
    return count


def open_sockets(pid: int) -> int:
    return _descriptors(pid, "socket:")


def unexpected(log: Path) -> str:
    """The first traceback in a broker's log, with what stands around it."""
    text = log.read_text(errors="replace")
    at = text.find("Traceback")
    return "" if at < 0 else text[max(0, at - 500) : at + 3000]
