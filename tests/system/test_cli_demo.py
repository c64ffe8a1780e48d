"""`make demo` works without a terminal, cleans up, and ends well."""

import subprocess
import sys
from pathlib import Path

STREAM = Path(__file__).parents[2] / "demo" / "stream.py"


def test_the_demo_ends_well() -> None:
    done = subprocess.run([sys.executable, str(STREAM)], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("60,900 of 60,900 messages, 0 out of order") == 2
    assert done.stdout.count("20,900 of 20,900 messages, 0 twice") == 2
    assert "9 of 9 given back came again" in done.stdout
    assert "25 keys, 0 of them with two consumers, 0 messages out of order" in done.stdout
    assert "broker stopped cleanly" in done.stdout
    assert done.stderr == ""
