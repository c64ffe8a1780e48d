"""The pipeline of the demo: the example project, run again and again by `anabranch pipeline run --every`.

    anabranch pipeline init shop --example
    anabranch pipeline run --spec shop --create-topics --every 1        while there is something to read

It is stopped in the pause after an update, if it can be.  How it goes is read from the status file that a run
keeps, as `anabranch pipeline status` does.  An update that began after the last record was acknowledged has
seen everything.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from anabranch.pipelines import project, status
from anabranch.pipelines.flows import DONE
from demo import child
from demo.screen import Flow

NAME = "shop"
STOP_SECONDS = 60
ASK_SECONDS = 60
UPDATE_SECONDS = 300
_COMMAND = [sys.executable, "-m", "anabranch.cli.main", "pipeline"]
# A busy machine may miss the ten seconds that Spark gives a Python process to start: it tries again.
_SETTINGS = ["--conf", "spark.driver.memory=1g", "--conf", "spark.sql.pipelines.maxFlowRetryAttempts=8"]
_LAST_LINES = 30

_ORDER = ("clicks", "late_clicks", "sessions", "orders", "late_orders", "revenue")


def _place(flow: str) -> tuple[int, str]:
    """Where a flow stands in the picture: what comes from clicks first, then what comes from orders."""
    return next((place for place, start in enumerate(_ORDER) if flow.startswith(start)), len(_ORDER)), flow


class Pipeline:
    def __init__(self, folder: Path, kafka: str, cores: int) -> None:
        self._kafka = kafka
        self._cores = cores
        self._said = folder / "pipeline.log"
        subprocess.run([*_COMMAND, "init", NAME, "--example"], cwd=folder, check=True, stdout=subprocess.PIPE)
        self.project = project.load(folder / NAME / project.SPEC_NAMES[0])
        self._process: subprocess.Popen[bytes] | None = None
        self._updates: dict[str, dict[str, Any]] = {}  # by when they began

    @property
    def tables(self) -> Path:
        assert self.project.local_storage is not None
        return self.project.local_storage / "tables"

    def start(self) -> None:
        self._run("--every", "1")

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        where = ("--spec", str(self.project.spec), "--bootstrap", self._kafka)
        how = ("--master", f"local[{self._cores}]", "--create-topics", *_SETTINGS)
        with self._said.open("ab") as said:
            self._process = child.start(
                signal.SIGINT, ["pipeline", "run", *where, *how, *words], said, subprocess.STDOUT
            )
        return self._process

    def look(self) -> None:
        """Takes note of how it stands.  SystemExit, with what it said, if it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise SystemExit(
                f"the pipeline ended with exit code {self._process.returncode}:\n{self._last_lines()}"
            )
        found = status.read(self.project)
        if found is not None:
            self._updates[found["started"]] = found

    @property
    def words(self) -> str:
        """How it stands, in short."""
        if not self._updates:
            return "Spark is starting"
        latest = self._updates[max(self._updates)]
        return f"update {len(self._updates)}, {latest['state']}"

    @property
    def has_begun(self) -> bool:
        return bool(self._updates)

    def flows(self) -> list[Flow]:
        """Every flow, with the rows of all updates so far."""
        rows_in: Counter[str] = Counter()
        rows_out: Counter[str] = Counter()
        latest: dict[str, dict[str, Any]] = {}
        for began, update in sorted(self._updates.items()):
            for name, flow in update["flows"].items():
                latest[name] = flow
                if flow["begun_at"] and flow["begun_at"] >= began:  # else an earlier update's
                    rows_in[name] += flow["rows_in"]
                    rows_out[name] += flow["rows_out"] or 0
        return [
            Flow(
                name,
                flow["state"],
                rows_in[name],
                rows_out[name] or None,  # Spark does not say of those that sum up
                flow["behind"],
                None if flow["batch_ms"] is None else flow["batch_ms"] / 1000,
            )
            for name, flow in sorted(latest.items(), key=lambda item: _place(item[0]))
        ]

    def has_seen_all_before(self, moment: datetime) -> bool:
        """Whether an update that began after `moment` is done."""
        return any(
            update["state"] == DONE and datetime.fromisoformat(began) > moment
            for began, update in self._updates.items()
        )

    def status(self) -> str:
        """What `anabranch pipeline status` says."""
        return self._ask("status").strip()

    def behind(self) -> int | None:
        """Records that it has not read; None where that is not known of a flow that reads a topic."""
        flows = json.loads(self._ask("status", "--json"))["flows"]
        behind = [flow["behind"] for flow in flows.values() if flow["offsets"]]
        return sum(behind) if behind and None not in behind else None

    def _ask(self, *words: str) -> str:
        command = [*_COMMAND, *words, "--spec", str(self.project.spec)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=ASK_SECONDS)
        return done.stdout

    def stop(self) -> None:
        """Stops it as Ctrl-C would."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise SystemExit(
                f"the pipeline did not stop within {STOP_SECONDS} s:\n{self._last_lines()}"
            ) from None

    def settle(self) -> None:
        """If it was stopped amid an update, which may have left views half written, makes one more."""
        found = status.read(self.project)
        if found is not None and found["state"] == DONE:
            return
        try:
            code = self._run().wait(UPDATE_SECONDS)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"the last update took more than {UPDATE_SECONDS} s") from None
        if code != 0:
            raise SystemExit(f"the pipeline ended with exit code {code}:\n{self._last_lines()}")

    def _last_lines(self) -> str:
        lines = self._said.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])
