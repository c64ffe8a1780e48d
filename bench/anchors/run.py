"""Apache Kafka and ours side by side, into one JSON file.

    python bench/anchors/run.py                    everything, 5 pairs a row: about an hour
    python bench/anchors/run.py --quick            fewer records, 2 pairs: a few minutes, to iterate
    python bench/anchors/run.py --only "fetch"     rows whose name has this
    python bench/anchors/run.py --what matrix      or events, topics; several are separated by commas
    python bench/anchors/run.py --ceiling          rows that store, with a log that does not

Starts a Kafka of its own on a free port (or takes `--kafka HOST:PORT --kafka-pid PID`).  Run nothing else
beside it. The file is bench/results/<date>-<what>.json (`--out` names another); bench/plot.py draws it.
"""

import argparse
import compileall
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import events
import many_topics
import pairs
from matrix import ROWS
from servers import KAFKA_VERSION, ROOT, Kafka, Ours
from store_nothing import STORING, WRAPPER

PARTS = ("matrix", "events", "topics")
LOADED_RSS_MB = 120
# The JVM compiles what is hot: a cold Kafka would flatter us.
WARM_UP = (
    "--mode produce --records 1000000 --size 100 --linger-ms 0 --delete-after",
    "--mode produce --records 500000 --size 1000 --delete-after",
    "--mode consume --records 1000000 --size 100 --delete-after",
    "--mode single --records 10000 --size 100 --clients 4 --partitions 4 --delete-after",
)


def machine() -> dict[str, Any]:
    models = [x.split(":", 1)[1].strip() for x in lines("/proc/cpuinfo") if x.startswith("model name")]
    memory = next((int(x.split()[1]) for x in lines("/proc/meminfo") if x.startswith("MemTotal")), 0)
    return {
        "cpu": (models or ["?"])[0],
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": first_line("java", "-version"),
        "kafka": KAFKA_VERSION,
        "librdkafka": ck.libversion()[0],
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
        "changed_files": len(output("git", "-C", str(ROOT), "status", "--porcelain", "src").splitlines()),
        "load_average": os.getloadavg()[0],
    }


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def repeatable(arguments: list[str]) -> list[str]:
    """The arguments without where this machine kept its data: that is nobody else's."""
    kept = list(arguments)
    while "--data" in kept:
        at = kept.index("--data")
        del kept[at : at + 2]
    return kept


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


def first_line(*command: str) -> str:
    return (output(*command).splitlines() or ["?"])[0]


def run_matrix(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    rows = [row for row in ROWS if args.only in row.name]
    wrapper: tuple[str, ...] = ()
    if args.ceiling:
        rows = [row for row in rows if row.mode in STORING]
        wrapper = WRAPPER
    kafka: Any = SimpleNamespace(name="kafka", bootstrap=args.kafka, pids=[args.kafka_pid])
    if args.kafka is None:
        kafka = Kafka(folder / "kafka")
        kafka.start()
    (folder / "ours").mkdir()
    reports = []
    try:
        with Ours(folder / "ours", wrapper=wrapper) as ours:
            for load in WARM_UP:
                pairs.run_load(kafka, load.split())
            for row in rows:
                report = pairs.measure(row, kafka, ours, args.rounds, args.share)
                pairs.show(report)
                reports.append(report)
    finally:
        if args.kafka is None:
            kafka.stop()
    return reports


def peak_rss(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The greatest memory of our broker in any run of the matrix."""
    seen = [run[Ours.name].get("broker_peak_rss_mb", 0.0) for row in rows for run in row["runs"]]
    greatest = max(seen, default=0.0)
    return {"mb": greatest, "target": f"<= {LOADED_RSS_MB}", "met": 0 < greatest <= LOADED_RSS_MB}


def arguments() -> argparse.Namespace:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, 2 pairs")
    parser.add_argument("--rounds", type=int, help="pairs a row (default 5; quick 2)")
    parser.add_argument("--share", type=float, help="of the records of a row (default 1; quick 0.1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows of the matrix whose name has this")
    parser.add_argument("--what", default=",".join(PARTS), help="matrix, events, topics")
    parser.add_argument("--ceiling", action="store_true", help="rows that store, against a log that does not")
    parser.add_argument("--topics", type=int, default=1000, help="topics of 10 partitions in `topics`")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a Kafka that runs already")
    parser.add_argument("--kafka-pid", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder for the brokers' data (default: a temporary one)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 5)
    args.share = args.share or (0.1 if args.quick else 1.0)
    if args.ceiling:
        args.what = "matrix"
    unknown = set(args.what.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--what knows {PARTS}, not {sorted(unknown)}")
    return args


def main() -> None:
    args = arguments()
    pairs.tool_is_there()
    what = args.what.split(",")
    report: dict[str, Any] = {
        "what": args.what,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "bench/anchors/run.py", *repeatable(sys.argv[1:])]),
        "machine": machine(),
    }
    compileall.compile_dir(ROOT / "src", quiet=2)  # as an installed package is
    with tempfile.TemporaryDirectory(prefix="anchors-", dir=args.data) as temporary:
        folder = Path(temporary)
        if "events" in what:
            print("start-up and idling", flush=True)
            idle_s = 5.0 if args.quick else 20.0
            report["events"] = events.measure(folder / "events", args.rounds, idle_s)
            events.show(report["events"])
        if "matrix" in what:
            print("side by side, ours / Kafka's", flush=True)
            report["rows"] = run_matrix(args, folder)
            report["peak_rss"] = peak_rss(report["rows"])
            print(f"  our greatest memory under load: {report['peak_rss']}")
        if "topics" in what:
            print("many topics", flush=True)
            report["topics"] = many_topics.measure(folder / "topics", args.rounds, args.share, args.topics)
            many_topics.show(report["topics"])
    if args.ceiling:
        args.what = report["what"] = "ceiling"
    name = f"{report['at'][:10]}-{args.what.replace(',', '-')}{'-quick' if args.quick else ''}.json"
    path = args.out or ROOT / "bench" / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
