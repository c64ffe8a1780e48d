"""The same script gives the same transcript on Apache Pulsar and on ours, through the real client.

`pulsar_transcripts/*.txt` were recorded from Apache Pulsar 4.2.4 by `bench/anchors/record_transcripts.py`.
The scripts mostly wait (for time-outs, delays, silence), so all of them run at once.
"""

import difflib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess

HERE = Path(__file__).parent
GOLDEN = sorted((HERE / "pulsar_transcripts").glob("*.txt"))

Scripts = dict[str, "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def scripts(plain_broker: BrokerProcess) -> Iterator[Scripts]:
    """Every script, under way, by its name."""
    running: Scripts = {}
    for golden in GOLDEN:
        command = [sys.executable, str(HERE / "pulsar_clients" / f"{golden.stem}.py")]
        command += [
            "--service",
            plain_broker.pulsar,
            "--admin",
            plain_broker.admin,
            "--prefix",
            f"{uuid.uuid4().hex[:8]}-",
        ]
        running[golden.stem] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    yield running
    for process in running.values():
        process.kill()
        process.communicate()


@pytest.mark.timeout(500)
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_transcript_is_pulsars(golden: Path, scripts: Scripts) -> None:
    said, complained = scripts[golden.stem].communicate(timeout=400)
    difference = difflib.unified_diff(
        golden.read_text().splitlines(), said.splitlines(), "Apache Pulsar", "ours", lineterm="", n=1
    )
    report = "\n".join(difference)
    if report or scripts[golden.stem].returncode:
        pytest.fail(f"{report}\n{complained[-3000:]}", pytrace=False)


def test_every_script_is_recorded() -> None:
    scripts = {path.stem for path in (HERE / "pulsar_clients").glob("*.py")} - {"pulsar_transcript"}
    assert scripts == {path.stem for path in GOLDEN}
