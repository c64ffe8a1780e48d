"""The same script gives the same transcript on Apache Pulsar and on ours, through the real client.

`pulsar_transcripts/*.txt` were recorded from Apache Pulsar 4.2.4 by `bench/anchors/record_transcripts.py`.
"""

import difflib
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GOLDEN = sorted((HERE / "pulsar_transcripts").glob("*.txt"))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_transcript_is_pulsars(golden: Path, pulsar_url: str, admin_url: str) -> None:
    script = HERE / "pulsar_clients" / f"{golden.stem}.py"
    command = [sys.executable, str(script), "--service", pulsar_url, "--admin", admin_url]
    command += ["--prefix", f"{uuid.uuid4().hex[:8]}-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    difference = difflib.unified_diff(
        golden.read_text().splitlines(), done.stdout.splitlines(), "Apache Pulsar", "ours", lineterm="", n=1
    )
    report = "\n".join(difference)
    if report or done.returncode:
        pytest.fail(f"{report}\n{done.stderr[-3000:]}", pytrace=False)


def test_every_script_is_recorded() -> None:
    scripts = {path.stem for path in (HERE / "pulsar_clients").glob("*.py")} - {"pulsar_transcript"}
    assert scripts == {path.stem for path in GOLDEN}
