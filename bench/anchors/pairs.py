"""Pairs of runs: the same load on Kafka and on ours in turn, A B B A ..., and the ratio of each pair.

These machines are noisy: the same run varies by a factor of two.  What slows the machine for a while slows
both sides of a pair alike, so the median of the pairs' ratios, with the least and the greatest, is the
figure that means something; a lone figure does not.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from matrix import FIGURES, Row, figure, met
from servers import SHARED

LOAD_TOOL = SHARED / "bench" / "kafka" / "load_kafka.py"
TIMEOUT_S = 300.0


class Server(Protocol):
    name: str

    @property
    def bootstrap(self) -> str: ...

    @property
    def pids(self) -> Sequence[int]: ...


Result = dict[str, Any]


def run_load(server: Server, load: Sequence[str]) -> Result | None:
    """One run of the load generator.  None if it failed, with the reason on stderr."""
    command = [sys.executable, str(LOAD_TOOL), "--bootstrap", server.bootstrap, *load]
    command += [part for pid in server.pids for part in ("--broker-pid", str(pid))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"    {server.name}: no end after {TIMEOUT_S:.0f} s", file=sys.stderr)
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"    {server.name} failed: {(done.stdout + done.stderr)[-600:]}", file=sys.stderr)
        return None
    result: Result = json.loads(lines[-1])
    return result


def run_pairs(
    load: Callable[[Server], Sequence[str]], a: Server, b: Server, rounds: int
) -> list[dict[str, Result]]:
    """`rounds` pairs after a warm-up of both; a pair in which a run failed is left out."""
    run_load(a, load(a))
    run_load(b, load(b))
    pairs = []
    for number in range(rounds):
        order = (a, b) if number % 2 == 0 else (b, a)
        got = {server.name: run_load(server, load(server)) for server in order}
        if all(got.values()):
            pairs.append({name: result for name, result in got.items() if result is not None})
    return pairs


def measure(row: Row, kafka: Server, ours: Server, rounds: int, share: float) -> dict[str, Any]:
    """A row of the matrix: every pair, and the ratios ours / Kafka's of every figure."""
    stamp = time.time_ns()

    def load(server: Server) -> list[str]:
        arguments = row.load(share)
        if row.mode == "consume":  # the topic is filled by the first run, the warm-up, and read by all
            return [*arguments, "--topic", f"fetch-{stamp}"]
        return [*arguments, "--delete-after"]

    pairs = run_pairs(load, kafka, ours, rounds)
    return {
        "name": row.name,
        "load": " ".join(row.load(share)),
        "pairs": len(pairs),
        "failed_pairs": rounds - len(pairs),
        "ratios": ratios(pairs, kafka.name, ours.name, row.targets),
        "runs": pairs,
    }


def ratios(
    pairs: list[dict[str, Result]],
    a: str,
    b: str,
    targets: dict[str, Any],
    figures: Sequence[str] = FIGURES,
) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for path in figures:
        both = [(figure(pair[a], path), figure(pair[b], path)) for pair in pairs]
        known = [(x, y) for x, y in both if x and y]
        if not known:
            continue
        sorted_ratios = sorted(y / x for x, y in known)
        median = statistics.median(sorted_ratios)
        report[path] = {
            "ratio": round(median, 3),
            "least": round(sorted_ratios[0], 3),
            "greatest": round(sorted_ratios[-1], 3),
            a: round(statistics.median(x for x, _ in known), 7),
            b: round(statistics.median(y for _, y in known), 7),
        }
        if path in targets:
            report[path] |= {"target": " ".join(map(str, targets[path])), "met": met(targets[path], median)}
    return report


def show(report: dict[str, Any]) -> None:
    print(f"  {report['name']}  ({report['pairs']} pairs, {report['failed_pairs']} failed)")
    for path, r in report["ratios"].items():
        verdict = "" if "met" not in r else f"  {'ok  ' if r['met'] else 'MISS'} (target {r['target']})"
        print(
            f"    {path:20} {r['ratio']:6.2f}x  [{r['least']:.2f} .. {r['greatest']:.2f}]{verdict}",
            flush=True,
        )


def tool_is_there() -> Path:
    if not LOAD_TOOL.exists():
        sys.exit(f"no {LOAD_TOOL}: set ANABRANCH_SHARED to the folder with bench/kafka/load_kafka.py")
    return LOAD_TOOL
