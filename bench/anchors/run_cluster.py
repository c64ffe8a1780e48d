"""A cluster of three brokers of Apache Kafka and one of ours side by side, into one JSON file.

    python bench/anchors/run_cluster.py                     everything, 5 pairs a row: about an hour
    python bench/anchors/run_cluster.py --only "produce"    rows whose name has this
    python bench/anchors/run_cluster.py --rounds 2 --share 0.2    less of it, to iterate
    python bench/anchors/run_cluster.py --session-ms 2000   failovers, with that session on both sides
    python bench/anchors/run_cluster.py --add FILE.json     put what is measured beside what FILE has

Rows are loads (three replicas, `acks=all`), and what clients wait for when a broker is killed or stands still
(failover.py).  Ours runs on a ZooKeeper of its own, whose processor time and memory are counted; Kafka's
brokers are their own controllers.  Run nothing else beside it.  bench/plot.py draws the file.
"""

import argparse
import compileall
import datetime
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import failover
import pairs
from clusters import BROKERS, Cluster, KafkaCluster, OurCluster
from matrix import LATENCY, Row, throughput
from process import rss_mb
from run import first_line, machine, repeatable
from servers import ROOT

REPLICAS = {"--partitions": "6", "--replication": "3", "--acks": "all"}
LOADS = (
    Row(
        "produce 1 KB",
        "produce",
        300_000,
        {"--size": "1000", **REPLICAS},
        throughput(1.0, 0.7),
    ),
    Row(
        "produce 100 B",
        "produce",
        1_500_000,
        {"--size": "100", **REPLICAS},
        throughput(1.0, 0.7),
    ),
    Row(
        "1,000 records/s of 1 KB, linger 5",
        "latency",
        8_000,
        {"--size": "1000", "--rate": "1000", "--linger-ms": "5", **REPLICAS},
        dict(LATENCY),
    ),
)
# The JVM compiles what is hot: a cold Kafka would flatter us.
WARM_UP = (
    "--mode produce --records 1000000 --size 100 --partitions 6 --replication 3 --delete-after",
    "--mode produce --records 300000 --size 1000 --partitions 6 --replication 3 --delete-after",
)
TOPICS, PARTITIONS = 10, 100
MOST_S = {"ack_s": 2.0, "commit_s": 2.0, "transaction_s": 2.0, "moved_s": 3.0}
"""Seconds after kill -9, of ours."""
MOST_RSS_MB = 150.0
MOVED = f"leaders of {TOPICS * PARTITIONS:,} partitions moved"

Report = dict[str, Any]


def events(session_ms: int | None) -> list[tuple[str, Callable[[Cluster], failover.Seconds], bool]]:
    """What happens to a cluster: its name, what does it, and whether its times have a bound."""

    def hurt(how: str, *, is_controller: bool) -> Callable[[Cluster], failover.Seconds]:
        return lambda cluster: failover.measure(cluster, how, is_controller=is_controller)

    told = "" if session_ms is None else f", session of {session_ms / 1000:g} s"
    return [
        (f"{failover.KILL} of a leader{told}", hurt(failover.KILL, is_controller=False), True),
        (
            f"{failover.KILL} of a leader that is the controller{told}",
            hurt(failover.KILL, is_controller=True),
            True,
        ),
        (f"{failover.PAUSE} of a leader{told}", hurt(failover.PAUSE, is_controller=False), False),
    ]


def by_turns(
    name: str, once: Callable[[Cluster], Report], sides: Sequence[Any], rounds: int, figures: Sequence[str]
) -> Report:
    """Pairs in turn, A B B A ..., of something that gives seconds."""
    runs = []
    for number in range(rounds):
        got = {}
        for side in sides if number % 2 == 0 else sides[::-1]:
            try:
                got[side.name] = once(side)
            except (TimeoutError, OSError, RuntimeError) as error:
                print(f"    {side.name} failed: {error}", file=sys.stderr)
        print(f"    {got}", flush=True)
        if len(got) == len(sides):
            runs.append(got)
    kafka, ours = (side.name for side in sides)
    return {
        "name": name,
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
        "pairs": len(runs),
        "failed_pairs": rounds - len(runs),
        "ratios": pairs.ratios(runs, kafka, ours, {}, figures),
        "runs": runs,
    }


def bounded(report: Report, name: str) -> Report:
    """With what our median is to be at most, and whether it is."""
    for path, found in report["ratios"].items():
        found |= {"target_s": MOST_S[path], "met_s": found[name] <= MOST_S[path]}
    return report


def moved(cluster: Cluster, topics: list[str], number: list[int]) -> Report:
    number[0] += 1
    return {"moved_s": failover.leaders_moved_s(cluster, topics, BROKERS[number[0] % len(BROKERS)])}


def run(args: argparse.Namespace, folder: Path) -> Report:
    settings = {} if args.session_ms is None else {"broker.session.timeout.ms": str(args.session_ms)}
    rows: list[Report] = []
    memory: Report = {"target": f"<= {MOST_RSS_MB}"}

    def done(row: Report) -> None:
        show(row)
        rows.append(row)

    with ExitStack() as held:
        kafka = KafkaCluster(folder / "kafka", settings)
        kafka.start()
        held.callback(kafka.stop)
        ours = OurCluster(folder / "ours", settings)
        ours.start()
        held.callback(ours.stop)
        sides = (kafka, ours)
        if args.session_ms is None:
            loads = [row for row in LOADS if args.only in row.name]
            for side in sides if loads else ():
                for load in WARM_UP:
                    pairs.run_load(side, load.split())
            for row in loads:
                done(pairs.measure(row, kafka, ours, args.rounds, args.share))
            memory["after loads"] = brokers_mb(sides)
        for name, once, is_bound in events(args.session_ms):
            if args.only in name:
                times = by_turns(name, once, sides, args.rounds, failover.FIGURES)
                done(bounded(times, ours.name) if is_bound else times)
        if args.session_ms is None and args.only in MOVED:
            topics = [f"many-{number}" for number in range(TOPICS)]
            for side in sides:
                for topic in topics:
                    replicas = [
                        [1 + (index + step) % len(BROKERS) for step in range(3)]
                        for index in range(PARTITIONS)
                    ]
                    failover.create(side.bootstrap, topic, replicas)
            memory["with many partitions"] = brokers_mb(sides)
            number = [0]
            times = by_turns(MOVED, lambda one: moved(one, topics, number), sides, args.rounds, ("moved_s",))
            done(bounded(times, ours.name))
            memory["after many were moved"] = brokers_mb(sides)
    most = max(
        (mb for told in memory.values() if isinstance(told, dict) for mb in told[ours.name]), default=0.0
    )
    return {"rows": rows, "memory_mb": memory | {"met": 0 < most <= MOST_RSS_MB}}


def brokers_mb(sides: Sequence[Cluster]) -> dict[str, list[float]]:
    """Of each broker, without ZooKeeper."""
    return {side.name: [round(rss_mb(side.pid_of(broker)), 1) for broker in BROKERS] for side in sides}


def show(report: Report) -> None:
    pairs.show(report)
    for path, found in report["ratios"].items():
        if path.endswith("_s") and path != "records_s":
            verdict = {True: "ok", False: "MISS", None: ""}[found.get("met_s")]
            seconds = {name: found[name] for name in ("kafka", OurCluster.name)}
            print(f"    {path:20} {seconds}  {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row")
    parser.add_argument("--share", type=float, default=1.0, help="of the records of a row")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    parser.add_argument("--session-ms", type=int, metavar="MS", help="failovers only, with this session")
    parser.add_argument("--add", type=Path, metavar="FILE", help="a result to put rows into")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    pairs.tool_is_there()
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report: Report = json.loads(args.add.read_text()) if args.add else {"rows": [], "memory_mb": {}}
    report |= {
        "what": "cluster",
        "at": at,
        "command": shlex.join(["python", "bench/anchors/run_cluster.py", *repeatable(sys.argv[1:])]),
        "machine": machine(),
    }
    compileall.compile_dir(ROOT / "src", quiet=2)  # as an installed package is
    with tempfile.TemporaryDirectory(prefix="anchors-") as temporary:
        found = run(args, Path(temporary))
    names = {row["name"] for row in found["rows"]}
    report["rows"] = [*(row for row in report["rows"] if row["name"] not in names), *found["rows"]]
    report["memory_mb"] |= found["memory_mb"]
    path = args.out or args.add or ROOT / "bench" / "results" / f"{at[:10]}-cluster.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"memory: {report['memory_mb']}\nwritten to {path}")


if __name__ == "__main__":
    main()
