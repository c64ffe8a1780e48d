"""Measure this tree alone: one broker, one client, a line a load.

    python bench/run.py [--share 0.1] [--only produce] [--out FILE.json]

Lone figures on a noisy machine: good for "did my change halve it", not for claims.  Claims are ratios
against Apache Kafka in alternating runs: bench/anchors/run.py.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "path"), str(ROOT / "bench" / "anchors")]

import load  # noqa: E402
from process import cpu_s, rss_mb  # noqa: E402

from tests.support.broker import BrokerProcess  # noqa: E402


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--share", type=float, default=1.0, help="of the records")
    parser.add_argument("--only", default="", metavar="TEXT", help="loads whose name has this")
    parser.add_argument("--out", type=Path, help="also write JSON")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary, BrokerProcess(Path(temporary)) as broker:
        print(f"{'':26} {'records/s':>12} {'MB/s':>8} {'broker CPU':>14} {'broker RSS':>12}")
        for chosen in load.LOADS:
            topic = "fetched" if chosen.run is load.fetch else f"load-{time.time_ns()}"
            count = max(100, int(chosen.records * args.share))
            if args.only not in chosen.name:
                continue
            load.create(broker.bootstrap, topic)
            if chosen.run is load.fetch:
                load.produce(broker.bootstrap, topic, count, chosen.size)
            cpu_before, started = cpu_s(broker.pid), time.monotonic()
            chosen.run(broker.bootstrap, topic, count)
            took_s, cpu = time.monotonic() - started, cpu_s(broker.pid) - cpu_before
            row = {
                "name": chosen.name,
                "records_s": round(count / took_s),
                "mb_s": round(count * chosen.size / took_s / 1e6, 1),
                "broker_cpu_us_per_record": round(cpu / count * 1e6, 2),
                "broker_rss_mb": round(rss_mb(broker.pid), 1),
            }
            results.append(row)
            print(
                f"{row['name']:26} {row['records_s']:>12,} {row['mb_s']:>8} "
                f"{row['broker_cpu_us_per_record']:>8} us/rec {row['broker_rss_mb']:>9} MB",
                flush=True,
            )
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
