"""Start-up and idling of both brokers: seconds to the first answer and the first acknowledgement, memory,
CPU."""

import statistics
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from process import cpu_s, idle_cpu_percent, rss_mb
from servers import Kafka, Ours, free_port, wait_for_metadata

TARGETS = {"first_answer_s": 0.5, "idle_rss_mb": 50.0, "idle_cpu_percent": 0.5}


def first_ack(bootstrap: str) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    producer.produce("first", b"x")
    if producer.flush(30):
        raise RuntimeError("the first record was not acknowledged")


def start_ours(folder: Path, settle_s: float, idle_s: float) -> dict[str, float]:
    folder.mkdir(parents=True)
    broker = Ours(folder, port=free_port())
    started = time.monotonic()
    broker.launch()
    try:
        wait_for_metadata(broker.bootstrap, 30)
        answer_s = time.monotonic() - started
        broker.wait_ready()
        first_ack(broker.bootstrap)
        ack_s = time.monotonic() - started
        return observed(broker.pid, answer_s, ack_s, settle_s, idle_s)
    finally:
        broker.kill()


def start_kafka(folder: Path, settle_s: float, idle_s: float) -> dict[str, float]:
    kafka = Kafka(folder)
    started = time.monotonic()
    answer_s = kafka.start()
    launched = time.monotonic() - answer_s
    try:
        first_ack(kafka.bootstrap)
        ack_s = time.monotonic() - max(launched, started)
        return observed(kafka.pid, answer_s, ack_s, settle_s, idle_s)
    finally:
        kafka.stop()


def observed(pid: int, answer_s: float, ack_s: float, settle_s: float, idle_s: float) -> dict[str, float]:
    start_cpu_s = cpu_s(pid)
    found = {
        "first_answer_s": round(answer_s, 3),
        "first_ack_s": round(ack_s, 3),
        "start_cpu_s": round(start_cpu_s, 2),
    }
    if idle_s:
        time.sleep(settle_s)
        found["idle_cpu_percent"] = round(idle_cpu_percent(pid, idle_s), 2)
        found["idle_rss_mb"] = round(rss_mb(pid), 1)
    return found


def measure(folder: Path, rounds: int, idle_s: float) -> dict[str, Any]:
    """Starts in turn; the last round of each also idles."""
    runs: dict[str, list[dict[str, float]]] = {"kafka": [], "anabranch": []}
    for number in range(rounds):
        idle = idle_s if number == rounds - 1 else 0.0
        runs["anabranch"].append(start_ours(folder / f"ours-{number}", 5.0, idle))
        runs["kafka"].append(start_kafka(folder / f"kafka-{number}", 15.0, idle))
    report: dict[str, Any] = {"runs": runs, "targets": TARGETS, "median": {}}
    for name, results in runs.items():
        keys = {key for result in results for key in result}
        report["median"][name] = {k: statistics.median(r[k] for r in results if k in r) for k in sorted(keys)}
    ours = report["median"]["anabranch"]
    report["met"] = {key: ours[key] <= bound for key, bound in TARGETS.items() if key in ours}
    return report


def show(report: dict[str, Any]) -> None:
    for key, ours in report["median"]["anabranch"].items():
        verdict = {True: "ok", False: "MISS", None: ""}[report["met"].get(key)]
        bound = f"(target <= {TARGETS[key]})" if key in TARGETS else ""
        kafka = report["median"]["kafka"].get(key, "-")
        print(f"    {key:20} ours {ours:8.2f}   kafka {kafka!s:>8}  {verdict} {bound}")
