"""The commands of docs/pipelines.md run as they stand, and what the page shows is what `init` makes."""

import os
import subprocess
import sys
from pathlib import Path

from anabranch.pipelines.project import create
from tests.pipelines.conftest import RUN_SECONDS
from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess
from tests.tidy.documents import blocks, commands

PAGE = "docs/pipelines.md"
ELSEWHERE = ("pip ", "anabranch standalone")  # the broker of these tests serves


def test_the_page_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ANABRANCH_BOOTSTRAP": broker.bootstrap,
    }
    said = ""
    for command in commands(PAGE):
        if not command.startswith(ELSEWHERE):
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS,
            )
            assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
            said = done.stdout
    assert said.startswith("sums: done")
    assert Topics(broker.bootstrap).values("numbers-dead-letters") == [b"nonsense"]


def test_the_page_shows_what_is_made(tmp_path: Path) -> None:
    made = {file.suffix: file.read_text() for file in create(tmp_path / "sums", example=False).files()}
    shown = {block.language: block.text for block in blocks(PAGE)}
    assert made[".py"].endswith(shown["py"])
    assert made[".sql"] == shown["sql"]
