"""The commands and programs in the documents run as they stand, in an empty folder, against a real broker.

A page's `console` blocks are run in order.  Only addresses are changed, so that two runs do not meet:
`anabranch standalone` gets a free port, and the commands after it get its address from the environment.
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
ELSEWHERE = ("make ", "pip ")  # set-up, and this very test
TRIED = [page for page in PAGES if any(command.startswith("anabranch") for command in commands(page))]


class Shell:
    """An empty folder and the brokers that were started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._brokers: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    @property
    def bootstrap(self) -> str:
        return self._environment["ANABRANCH_BOOTSTRAP"]

    def run(self, command: str) -> None:
        if command.startswith(STANDALONE):
            self._start(command.removesuffix("&").split())
            return
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"

    def python(self, program: str) -> None:
        program = program.replace("127.0.0.1:9092", self.bootstrap)
        subprocess.run([sys.executable, "-c", program], cwd=self.folder, check=True, timeout=60)

    def _start(self, words: list[str]) -> None:
        ready = self.folder / f"ready-{len(self._brokers)}.json"
        words += ["--kafka-port", "0", "--ready-file", str(ready)]
        process = subprocess.Popen(words, cwd=self.folder, env=self._environment, stdout=subprocess.DEVNULL)
        self._brokers.append(process)
        deadline = time.monotonic() + 20
        while not ready.exists():
            assert process.poll() is None, f"{words} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{words} does not serve"
            time.sleep(0.02)
        served = json.loads(ready.read_text())
        self._environment["ANABRANCH_BOOTSTRAP"] = served["kafka"]
        self._environment["ANABRANCH_HTTP"] = served["http"]

    def stop(self) -> None:
        for process in self._brokers:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(20) for process in self._brokers] == [0] * len(self._brokers)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.stop()


@pytest.mark.parametrize("page", TRIED)
def test_the_page_runs(page: str, shell: Shell) -> None:
    for command in commands(page):
        if not command.startswith(ELSEWHERE):
            shell.run(command)
    for block in blocks(page):
        if block.language == "python":
            shell.python(block.text)
