"""Spark's own Kafka connector and ours side by side, on the same topics of our broker, into one JSON file.

    python bench/spark/run.py                       all rows, 5 pairs
    python bench/spark/run.py --share 0.1 --rounds 2 --only count     to iterate

One Spark session, local mode on two cores, reads and writes the same data with `format("kafka")` and with
`format("anabranch")` in turn.  Row counts are checked.  Rows and ratios have the shape of the other results;
bench/plot.py draws them.  The connector's jars come from Maven, once:

    mvn -f SHARED/bench/kafka/pom-spark.xml dependency:copy-dependencies -DoutputDirectory=DIR   # --jars DIR
"""

import argparse
import datetime
import json
import shlex
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "anchors"))

import pairs  # noqa: E402
from loads import LOADS, SIZES, Bench, Load, fill  # noqa: E402
from run import machine  # noqa: E402
from servers import ANCHORS, ROOT, Ours  # noqa: E402
from session import open_session  # noqa: E402

FIGURES = ("rows_s", "latency_ms.p50", "latency_ms.p99")
CONNECTOR = "4.2.0"  # the newest on Maven Central; no 4.3.0 was there


def measure(load: Load, bench: Bench, rounds: int) -> dict[str, Any]:
    """Pairs in turn, A B B A ..., after a run of each to warm up."""
    for source in ("kafka", "anabranch"):
        load.run(bench, source)
    runs = []
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row")
    parser.add_argument("--share", type=float, default=1.0, help="of the records of each topic")
    parser.add_argument("--jars", type=Path, default=ANCHORS / f"spark-kafka-{CONNECTOR}")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    if not list(args.jars.glob("*.jar")):
        sys.exit(f"no jars in {args.jars}: see {Path(__file__).name}'s first lines")
    report: dict[str, Any] = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "bench/spark/run.py", *sys.argv[1:]]),
        "machine": machine() | {"pyspark": version("pyspark"), "connector": CONNECTOR},
        "rows": [],
    }
    path = args.out or ROOT / "bench" / "results" / f"{report['at'][:10]}-spark.json"
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        with Ours(folder) as broker:
            spark = open_session(args.jars)
            for size in SIZES:
                records = round(size.records * args.share)
                bench = Bench(spark, broker.bootstrap, folder / "out", size.name, records, size.label)
                loads = [one for one in LOADS if args.only in f"{one.name}, {size.label}"]
                if loads:
                    fill(bench, size.size_bytes)
                for load in loads:
                    row = measure(load, bench, args.rounds)
                    pairs.show(row)
                    report["rows"].append(row)
                    path.write_text(json.dumps(report, indent=1) + "\n")
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
