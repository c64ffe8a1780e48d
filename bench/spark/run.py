"""Spark's own Kafka connector and ours side by side, on the same topics of our broker, into one JSON file.

    python bench/spark/run.py                       all rows, 5 pairs, a quarter of an hour
    python bench/spark/run.py --share 0.1 --rounds 2 --only count     to iterate

One Spark session, local mode on two cores, reads and writes the same data with `format("kafka")` and with
`format("anabranch")` in turn.  Row counts are checked.  Rows and ratios have the shape of the other results;
bench/plot.py draws them, which is done at the end.  The connector's jars come from Maven, once.
"""

import argparse
import datetime
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "anchors"), str(HERE.parent)]

import pairs  # noqa: E402
from loads import LATENCY, LATENCY_RATE_S, LOADS, SIZES, Bench, Load, fill  # noqa: E402
from plot import draw_beside  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from run import machine  # noqa: E402
from servers import ROOT, Ours  # noqa: E402
from session import CONNECTOR, JARS, fetch_jars, open_session  # noqa: E402

BROKER = {"anabranch.table.maintain": "false"}  # tables are brought up to date when it is their turn
FIGURES = ("rows_s", "latency_ms.p50", "latency_ms.p99")


def measure(load: Load, bench: Bench, rounds: int) -> dict[str, Any]:
    """Pairs in turn, A B B A ..., after a run of each to warm up."""
    runs = []
    with contextmanager(load.around)(bench):
        for source in ("kafka", "anabranch"):
            load.run(bench, source)
        for number in range(rounds):
            order = ("kafka", "anabranch") if number % 2 == 0 else ("anabranch", "kafka")
            runs.append({source: load.run(bench, source) for source in order})
    return {
        "name": f"{load.name}, {bench.label}",
        "pairs": len(runs),
        "failed_pairs": 0,
        "ratios": pairs.ratios(runs, "kafka", "anabranch", load.targets, FIGURES),
        "runs": runs,
    }


def jobs(
    spark: SparkSession, bootstrap: str, out: Path, share: float, only: str
) -> Iterator[tuple[Load, Bench]]:
    """Loads whose names have `only`, each with its topic, which is filled when it is first needed."""
    for size in SIZES:
        bench = Bench(
            spark, bootstrap, out, size.name, round(size.records * share), size.label, size.size_bytes
        )
        wanted = [one for one in LOADS if only in f"{one.name}, {size.label}"]
        if wanted:
            fill(bench)
        yield from ((one, bench) for one in wanted)
    if only in LATENCY.name:
        yield LATENCY, Bench(spark, bootstrap, out, "", 0, f"{LATENCY_RATE_S:.0f} records/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row")
    parser.add_argument("--share", type=float, default=1.0, help="of the records of each topic")
    parser.add_argument("--jars", type=Path, default=JARS, help="the connector's")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    fetch_jars(args.jars)
    report: dict[str, Any] = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "bench/spark/run.py", *sys.argv[1:]]),
        "machine": machine() | {"pyspark": version("pyspark"), "connector": CONNECTOR},
        "rows": [],
    }
    path = args.out or ROOT / "bench" / "results" / f"{report['at'][:10]}-spark.json"
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        with Ours(folder, BROKER) as broker:
            spark = open_session(args.jars)
            for load, bench in jobs(spark, broker.bootstrap, folder / "out", args.share, args.only):
                try:
                    row = measure(load, bench, args.rounds)
                except subprocess.CalledProcessError as error:
                    print(f"  {load.name}, {bench.label}: skipped; {error}")
                    continue
                pairs.show(row)
                report["rows"].append(row)
                path.write_text(json.dumps(report, indent=1) + "\n")
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(draw_beside(path))


if __name__ == "__main__":
    main()
