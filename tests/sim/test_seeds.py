"""Whole clusters from seeds: some seeds each time, and the same seed gives the same run.

They run in processes of their own, in which strings hash alike; `make sim SEEDS=1..1000` runs more.
"""

import os
import re
import subprocess
import sys

SEEDS = "1..24"
_LONG_S = 280


def sim(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"tests.sim.{module}", *arguments]
    ran = subprocess.run(
        command,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=_LONG_S,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_seeds_keep_their_promises() -> None:
    said = sim("run", SEEDS)
    acknowledged = re.search(r"(\d+) records acknowledged", said)
    assert acknowledged is not None
    assert int(acknowledged[1]) > 500, "there was hardly any load"


def test_a_seed_is_the_same_run_each_time() -> None:
    def told() -> str:
        return "\n".join(
            line for line in sim("run", "2", "--trace").splitlines() if not line.startswith("1 seeds")
        )

    one, other = (re.sub(r"in [\d.]+ s,", "", told()) for _ in range(2))
    assert one == other


def test_a_planted_bug_is_found() -> None:
    assert "early-ack: " in sim("planted", "early-ack", "1..20")
