"""`make demo` without a terminal: a real broker, real clients, a real Spark, and a proof that holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.ledger import Ledger
from demo.shop import CLICKS, ORDERS, morning

ROOT = Path(__file__).parents[2]
RATE, SECONDS = 1_000, 6


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.timeout(1200)
def test_a_short_morning_is_proved(tmp_path: Path) -> None:
    done = run("--rate", str(RATE), "--seconds", str(SECONDS), "--seed", "11", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    ledger = Ledger(morning(RATE * SECONDS, seed=11))
    for topic in (CLICKS, ORDERS):
        sent = ledger.sent[topic]
        assert f"✓ {topic}: {sent:,} sent, {sent:,} acknowledged = " in done.stdout
    for rows in (
        f"{len(ledger.on_time):,} clean records",
        f"{len(ledger.late):,} late records",
        f"{len(ledger.flawed):,} dead letters",
        f"{len(ledger.revenue):,} minutes in the table of revenue",
        f"{len(ledger.revenue):,} minutes announced on the topic of revenue",
        f"{ledger.sessions.total():,} sessions",
    ):
        assert f"✓ {rows}, row for row" in done.stdout
    assert "✓ lag: 0 records" in done.stdout
    assert "✗" not in done.stdout
    assert re.search(r"✓ proved, after \d+ s in all", done.stdout)
    assert list(tmp_path.glob("anabranch-demo-*")) == []


@pytest.mark.timeout(1200)
def test_a_cluster_shows_the_same(tmp_path: Path) -> None:
    done = run("--rate", "500", "--seconds", "3", "--brokers", "3", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the 3 brokers from nothing to serving" in done.stdout
    assert re.search(r"^✓ \d+ partitions in sync on 3 brokers$", done.stdout, re.MULTILINE)
    assert "✗" not in done.stdout
    assert list(tmp_path.glob("anabranch-demo-*")) == []


def test_what_is_missing_is_said_before_anything_is_started(tmp_path: Path) -> None:
    done = run(JAVA_HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"JAVA_HOME is {tmp_path}, which has no bin/java that runs" in done.stderr


@pytest.mark.parametrize(
    "wrong", [("--rate", "0"), ("--seconds", "0"), ("--brokers", "0"), ("--cores", "0"), ("--keep", ".")]
)
def test_options_that_make_no_sense(wrong: tuple[str, str]) -> None:
    assert run(*wrong).returncode == 2
