"""Apache Pulsar and ours side by side, into one JSON file.

    python bench/anchors/run_pulsar.py                     every row, 5 pairs; start and memory of both
    python bench/anchors/run_pulsar.py --only "consume"    rows whose name has this
    python bench/anchors/run_pulsar.py --add FILE.json     put what is measured beside what FILE has
    python bench/anchors/run_pulsar.py --ceiling           rows that store, with a log that does not

Starts a Pulsar standalone of its own (journal sync off, as its release has it).  Run nothing else beside it.
Rows are those of pulsar_rows.py, in the shape of run.py's results; bench/plot.py draws them.
"""

import argparse
import compileall
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pairs
from matrix import Row
from process import rss_mb
from pulsar_rows import FIGURES, ROWS
from run import machine, repeatable
from servers import ROOT, SHARED, Ours
from store_nothing import STORING, WRAPPER

SCRIPTS = SHARED / "bench" / "pulsar"
LOAD_TOOL = SCRIPTS / "load_pulsar.py"
PULSAR_VERSION = "4.2.4"
TIMEOUT_S = 300.0
IDLE_S = 20.0
START_S = 60.0
# The JVM compiles what is hot: a cold Pulsar would flatter us.
WARM_UP = (
    "--mode produce --records 400000 --size 100",
    "--mode produce --records 60000 --no-batching",
    "--mode consume --records 300000 --size 1024",
    "--mode shared --records 60000 --no-batching",
    "--mode shared --records 40000 --no-batching --sub-type key_shared",
    "--mode single --records 1000",
)


class Pulsar:
    name = "pulsar"
    pulsar = "pulsar://127.0.0.1:16650"
    admin = "http://127.0.0.1:18080"
    pid = 0

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Its port is open before its namespaces are there: wait for these."""
        told = " ".join(f"{name}={value}" for name, value in (settings or {}).items())
        self._run({"SET": told} if told else {})
        deadline = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.admin}/admin/v2/namespaces/public/default", timeout=5):
                    return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def launch(self) -> None:
        """Start it without waiting."""
        self._run({"NOWAIT": "1"})

    def _run(self, environment: dict[str, str]) -> None:
        done = subprocess.run(
            [SCRIPTS / "start-pulsar.sh"], check=True, stdout=subprocess.PIPE, env=os.environ | environment
        )
        self.pid = int(done.stdout.split()[-1])

    def stop(self) -> None:
        subprocess.run([SCRIPTS / "stop-pulsar.sh"], check=False, capture_output=True)


Server = Pulsar | Ours


def run_load(server: Server, load: list[str]) -> dict[str, Any] | None:
    """One run of the load generator.  None if it failed, with the reason on stderr."""
    command = [sys.executable, str(LOAD_TOOL), "--url", server.pulsar, "--admin", server.admin, *load]
    command += ["--broker-pid", str(server.pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"    {server.name}: no end after {TIMEOUT_S:.0f} s", file=sys.stderr)
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"    {server.name} failed: {(done.stdout + done.stderr)[-600:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def measure(row: Row, pulsar: Pulsar, ours: Ours, rounds: int, share: float) -> dict[str, Any]:
    """Pairs in turn, A B B A ..., after a run of each to warm up."""
    load = [word for word in row.load(share) if word]
    for server in (pulsar, ours):
        run_load(server, load)
    runs = []
    for number in range(rounds):
        order: tuple[Server, ...] = (pulsar, ours) if number % 2 == 0 else (ours, pulsar)
        got = {server.name: run_load(server, load) for server in order}
        if all(got.values()):
            runs.append({name: result for name, result in got.items() if result is not None})
    return {
        "name": row.name,
        "load": " ".join(load),
        "pairs": len(runs),
        "failed_pairs": rounds - len(runs),
        "ratios": pairs.ratios(runs, pulsar.name, ours.name, row.targets, FIGURES),
        "runs": runs,
    }


def starts(folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds from the launch to the first acknowledged message, and memory after a while of nothing."""
    report: dict[str, Any] = {}
    for name in ("pulsar", "anabranch"):
        seconds, idle_mb = [], 0.0
        for number in range(1 if name == "pulsar" else rounds):
            place = folder / f"start-{name}-{number}"
            place.mkdir(parents=True)
            server: Server = Pulsar() if name == "pulsar" else Ours(place)
            began = time.time()
            server.launch()
            if isinstance(server, Ours):
                server.wait_ready()
            first = run_load(server, ["--mode", "first", "--since", str(began), "--topic", "first"])
            seconds.append(first["seconds_to_first_ack"] if first else None)
            if number == 0:
                time.sleep(IDLE_S)
                idle_mb = rss_mb(server.pid)
            server.stop()
        report[name] = {"first_ack_s": seconds, "idle_rss_mb": round(idle_mb, 1)}
        print(f"  {name}: first ack after {seconds} s, {idle_mb:.0f} MB when idle", flush=True)
    return report


def run_rows(args: argparse.Namespace, folder: Path, keep: Callable[[dict[str, Any]], None]) -> None:
    """Measure the rows asked for; `keep` gets each when it is done."""
    rows = [row for row in ROWS if args.only in row.name and (not args.ceiling or row.mode in STORING)]
    if not rows:
        return
    pulsar = Pulsar()
    pulsar.start()
    try:
        (folder / "ours").mkdir()
        with Ours(folder / "ours", wrapper=WRAPPER if args.ceiling else ()) as ours:
            for words in () if args.cold else WARM_UP:
                run_load(pulsar, words.split())
            for row in rows:
                report = measure(row, pulsar, ours, args.rounds, args.share)
                pairs.show(report)
                keep(report)
    finally:
        pulsar.stop()


def together(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of pulsar_rows.py; what was measured again replaces what was."""
    by_name = {report["name"]: report for report in [*old, *new]}
    return [by_name[row.name] for row in ROWS if row.name in by_name]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row")
    parser.add_argument("--share", type=float, default=1.0, help="of the records of each row")
    parser.add_argument("--cold", action="store_true", help="do not warm Pulsar up first: to iterate")
    parser.add_argument("--no-starts", action="store_true", help="leave start and idle memory out")
    parser.add_argument("--ceiling", action="store_true", help="rows that store, against a log that does not")
    parser.add_argument("--add", type=Path, metavar="FILE", help="a result to add to")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    compileall.compile_dir(ROOT / "src", quiet=1)
    report: dict[str, Any] = json.loads(args.add.read_text()) if args.add else {"rows": []}
    report |= {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "bench/anchors/run_pulsar.py", *repeatable(sys.argv[1:])]),
        "machine": machine() | {"pulsar": PULSAR_VERSION, "client": version("pulsar-client")},
    }
    what = "pulsar-ceiling" if args.ceiling else "pulsar"
    path = args.out or args.add or ROOT / "bench" / "results" / f"{report['at'][:10]}-{what}.json"

    def keep(row: dict[str, Any]) -> None:
        """Write what there is so far: a run that is cut short has not been for nothing."""
        report["rows"] = together(report["rows"], [row])
        path.write_text(json.dumps(report, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as temporary:
        if not args.no_starts and not args.ceiling:
            report["starts"] = starts(Path(temporary), args.rounds)
        run_rows(args, Path(temporary), keep)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
