"""The same script gives the same transcript on Apache Kafka and on ours: one test a client and subject.

`transcripts/*.txt` were recorded from Apache Kafka 4.3.1 by `bench/anchors/record_transcripts.py`.
"""

import difflib
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.double_broker import ON_DOUBLE

HERE = Path(__file__).parent
GOLDEN = sorted((HERE / "transcripts").glob("*.txt"))


@pytest.fixture
def address(golden: Path, bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Of a broker on which the script's epochs, locks and sessions stay as they are, if it shows them."""
    if ON_DOUBLE and golden.stem.startswith("raw_"):
        plain: BrokerProcess = request.getfixturevalue("plain_broker")
        return plain.bootstrap
    return bootstrap


@pytest.mark.timeout(500)
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_transcript_is_kafkas(golden: Path, address: str) -> None:
    script = HERE / "clients" / f"{golden.stem}.py"
    command = [sys.executable, str(script), "--bootstrap", address, "--prefix", f"{uuid.uuid4().hex[:8]}-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    difference = difflib.unified_diff(
        golden.read_text().splitlines(), done.stdout.splitlines(), "Apache Kafka", "ours", lineterm="", n=1
    )
    report = "\n".join(difference)
    if report or done.returncode:
        pytest.fail(f"{report}\n{done.stderr[-3000:]}", pytrace=False)


def test_every_script_is_recorded() -> None:
    scripts = {path.stem for path in (HERE / "clients").glob("*_*.py")}
    assert scripts == {path.stem for path in GOLDEN}
