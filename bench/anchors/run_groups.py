"""Groups and transactions, Apache Kafka and ours side by side, into one JSON file.

    python bench/anchors/run_groups.py                     every row, 5 pairs, and the loading of offsets
    python bench/anchors/run_groups.py --only "join"       rows whose name has this
    python bench/anchors/run_groups.py --add FILE.json     put what is measured beside what FILE has

Starts a Kafka of its own on a free port (or takes `--kafka HOST:PORT --kafka-pid PID`).  Run nothing else
beside it.  Rows are those of group_rows.py, in the shape of run.py's results; bench/plot.py draws them.
`loading` is group_loading.py: seconds to read 100,000 committed offsets back after a restart.
"""

import argparse
import compileall
import datetime
import json
import multiprocessing
import shlex
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import group_loading
import pairs
from group_rows import FIGURES, ROWS, Figures, Row
from pairs import Server
from run import first_line, machine
from servers import FOR_ONE_BROKER, ROOT, Kafka, Ours

WARM_UPS = 4
LOADING = "loading of 100,000 offsets"


def run_once(row: Row, server: Server, number: int) -> Figures:
    """A run in a process of its own: a process can have a thousand of the client's handles in its life."""
    told = SimpleNamespace(name=server.name, bootstrap=server.bootstrap, pids=server.pids)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(row.load, told, number).result()


def measure(row: Row, kafka: Server, ours: Server, rounds: int) -> dict[str, Any]:
    """Pairs in turn, A B B A ..., after some runs to warm up: a JVM that is cold would flatter us."""
    for server in (*(kafka,) * WARM_UPS, ours):
        run_once(row, server, 0)
    runs = []
    for number in range(rounds):
        order = (kafka, ours) if number % 2 == 0 else (ours, kafka)
        got = {}
        for server in order:
            try:
                got[server.name] = run_once(row, server, number)
            except (RuntimeError, TimeoutError, OSError, BrokenProcessPool) as error:
                print(f"    {server.name} failed: {error}", file=sys.stderr)
        if len(got) == len(order):
            runs.append(got)
    return {
        "name": row.name,
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
        "pairs": len(runs),
        "failed_pairs": rounds - len(runs),
        "ratios": pairs.ratios(runs, kafka.name, ours.name, row.targets, FIGURES),
        "runs": runs,
    }


def make_offsets_topic(bootstrap: str) -> None:
    """Kafka makes it when somebody first asks for a coordinator, and refuses commits until it has."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "first", "log_level": 0})
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.committed([ck.TopicPartition("nothing", 0)], timeout=60)
            break
        except ck.KafkaException:  # its coordinator is being found, or loads
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    consumer.close()


def run_rows(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    rows = [row for row in ROWS if args.only in row.name]
    kafka: Any = SimpleNamespace(name="kafka", bootstrap=args.kafka, pids=[args.kafka_pid])
    reports: list[dict[str, Any]] = []
    if not rows:
        return reports
    if args.kafka is None:
        kafka = Kafka(folder / "kafka", FOR_ONE_BROKER)
        kafka.start()
    try:
        (folder / "ours").mkdir()
        with Ours(folder / "ours") as ours:
            for server in (kafka, ours):
                make_offsets_topic(server.bootstrap)
            for row in rows:
                report = measure(row, kafka, ours, args.rounds)
                pairs.show(report)
                reports.append(report)
    finally:
        if args.kafka is None:
            kafka.stop()
    return reports


def together(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of group_rows.py; what was measured again replaces what was."""
    by_name = {row["name"]: row for row in (*old, *new)}
    return [by_name[row.name] for row in ROWS if row.name in by_name]


def repeatable(args: argparse.Namespace) -> str:
    """The command of this run without what only this machine has; of the whole, if it is done in parts."""
    told = [] if args.add else ["--rounds", str(args.rounds), *(("--only", args.only) if args.only else ())]
    return shlex.join(["python", "bench/anchors/run_groups.py", *told])


def arguments() -> argparse.Namespace:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row")
    parser.add_argument("--only", default="", metavar="TEXT", help=f"rows, or {LOADING!r}, that have this")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a Kafka that runs already")
    parser.add_argument("--kafka-pid", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder for the brokers' data (default: a temporary one)")
    parser.add_argument("--add", type=Path, metavar="FILE", help="a result that is gone on with")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    report: dict[str, Any] = {
        "what": "groups",
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": repeatable(args),
        "machine": machine(),
    }
    compileall.compile_dir(ROOT / "src", quiet=2)  # as an installed package is
    with tempfile.TemporaryDirectory(prefix="anchors-", dir=args.data) as temporary:
        folder = Path(temporary)
        print("side by side, ours / Kafka's", flush=True)
        report["rows"] = run_rows(args, folder)
        if args.only in LOADING:
            report["loading"] = group_loading.measure(folder, args.rounds)
            group_loading.show(report["loading"])
    before = json.loads(args.add.read_text()) if args.add and args.add.exists() else {}
    report["rows"] = together(before.get("rows", []), report["rows"])
    report.setdefault("loading", before.get("loading", {}))
    path = args.out or args.add or ROOT / "bench" / "results" / f"{report['at'][:10]}-groups.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
