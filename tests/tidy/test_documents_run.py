"""The commands and programs in the documents run as they stand, in an empty folder, against a real broker.

A page's `console` and `python` blocks are run in order; its programs share their names, as in a session.
Only addresses are changed, so that two runs do not meet: `anabranch standalone` gets free ports, the commands
after it get its addresses from the environment, and where a page writes one down the broker's stands instead.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.documents import PAGES, blocks, commands

STANDALONE = "anabranch standalone"
CLUSTER = "anabranch cluster up"  # with --detach, in the default folder
ELSEWHERE = ("make ", "pip ")  # set-up, and this very test
TRIED = [page for page in PAGES if any(command.startswith("anabranch") for command in commands(page))]
WRITTEN = {"kafka": "127.0.0.1:9092", "pulsar": "127.0.0.1:6650", "http": "127.0.0.1:8080"}
VARIABLES = {"kafka": "ANABRANCH_BOOTSTRAP", "pulsar": "ANABRANCH_SERVICE", "http": "ANABRANCH_HTTP"}
SESSION = """
import json, sys
names = {}
for line in sys.stdin:
    exec(json.loads(line), names)
    print("\\ndone", flush=True)
"""


class Shell:
    """An empty folder, the brokers that were started in it, and a session of Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._brokers: list[subprocess.Popen[bytes]] = []
        self._session: subprocess.Popen[str] | None = None
        self._served: dict[str, str] = {}
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, command: str) -> None:
        if command.startswith(STANDALONE):
            self._start(command.removesuffix("&").split())
            return
        if command.startswith(CLUSTER):
            command += " --kafka-port 0"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._addressed(command)],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        if command.startswith(CLUSTER):
            self._serve(self.folder / "anabranch-cluster" / "ready.json")

    def python(self, program: str) -> None:
        if self._session is None:
            self._session = subprocess.Popen(
                [sys.executable, "-c", SESSION],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._session.stdin is not None
        assert self._session.stdout is not None
        self._session.stdin.write(json.dumps(self._addressed(program)) + "\n")
        self._session.stdin.flush()
        assert "done\n" in self._session.stdout, (
            f"this failed, and its reason is on standard error:\n{program}"
        )

    def _addressed(self, text: str) -> str:
        for name, written in WRITTEN.items():
            text = text.replace(written, self._served.get(name, written))
        return text

    def _start(self, words: list[str]) -> None:
        ready = self.folder / f"ready-{len(self._brokers)}.json"
        words += ["--kafka-port", "0", "--ready-file", str(ready)]
        process = subprocess.Popen(words, cwd=self.folder, env=self._environment, stdout=subprocess.DEVNULL)
        self._brokers.append(process)
        deadline = time.monotonic() + 90
        while not ready.exists():
            assert process.poll() is None, f"{words} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{words} does not serve"
            time.sleep(0.02)
        self._serve(ready)

    def _serve(self, ready: Path) -> None:
        self._served = json.loads(ready.read_text())
        for name, variable in VARIABLES.items():
            self._environment[variable] = self._served[name]

    def stop(self) -> None:
        ended = []
        if (self.folder / "anabranch-cluster" / "ready.json").exists():  # the page failed before its end
            subprocess.run(["anabranch", "cluster", "down"], cwd=self.folder, env=self._environment)
        if self._session is not None:
            self._session.communicate(timeout=90)
            ended.append(self._session.returncode)
        for process in self._brokers:
            process.send_signal(signal.SIGTERM)
        ended += [process.wait(90) for process in self._brokers]
        assert not any(ended), f"a broker or the session of Python ended badly: {ended}"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", TRIED)
def test_the_page_runs(page: str, shell: Shell) -> None:
    for block in blocks(page):
        for command in block.commands:
            if not command.startswith(ELSEWHERE):
                shell.run(command)
        if block.language == "python":
            shell.python(block.text)
