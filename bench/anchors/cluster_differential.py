"""The same requests to three brokers of Apache Kafka and to three of ours: the same answers, or what differs.

    python bench/anchors/cluster_differential.py                     everything, some minutes
    python bench/anchors/cluster_differential.py --only fetch        sections whose name has this
    python bench/anchors/cluster_differential.py --all               also the differences that are explained

A request goes to each of the brokers, at every version: to the leader of a partition, to a follower, to one
without a replica; to a coordinator and to one that is none; with all brokers there, and with one down.  Ids
of brokers, epochs and replicas are the same on both sides; ports, other ids and times are taken out of the
answers.  What differs for a reason is in `EXPLAINED`.  The requests are in cluster_requests.py.
"""

import argparse
import datetime
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from cluster_requests import SECTIONS
from cluster_sides import Ask, Side
from clusters import KafkaCluster, OurCluster

_SECURITY = "security and quotas are to come"
_QUORUM = "the metadata are in no log of Kafka's: the controller is the only voter, and there are no offsets"
_ELR = "eligible leader replicas (KIP-966): as Kafka with that feature off, the last in sync stay in the ISR"
EXPLAINED: dict[str, dict[str, str]] = {
    "api versions": {
        **{f".API {key}:": _SECURITY for key in (17, 29, 30, 31, 36, 38, 39, 40, 41, 48, 49, 50, 51)},
        ".API 56:": "leaders ask for another ISR on the brokers' own listener, which may be that of clients",
        ".API 57:": "features have one level each",
        **{f".API {key}:": "the quorum of KRaft" for key in (80, 81)},
        **{f".API {key}:": "Kafka Streams has its groups by the older protocol" for key in (88, 89)},
    },
    "API 56": {"": "leaders ask for another ISR on the brokers' own listener, which may be that of clients"},
    "API 57": {"": "features have one level each"},
    "API 80": {"": "the quorum of KRaft"},
    "API 81": {"": "the quorum of KRaft"},
    "describe quorum __cluster_metadata-0": {"": _QUORUM},
    "metadata": {".isr_nodes: Kafka [], ours [": _ELR},
    "describe topic partitions": {
        ".isr_nodes: Kafka [], ours [": _ELR,
        ".eligible_leader_replicas:": _ELR,
        ".last_known_elr:": _ELR,
    },
    "replace configs 4 ''": {"": _ELR + ", and the setting for all may go"},
    "fetch offsets at": {"topics:": "librdkafka asks again for unstable partitions only (its issue 5586)"},
    "request 2 of a share session": {"": "who acknowledges to the wrong broker is told the right one"},
    **{
        f"{label} a share state at the coordinator": {
            "": "what is done with from the start on is below the start"
        }
        for label in ("read", "read summary of", "read again")
    },
    "describe configs 4": {".configs": "throttles are options as others are, and shown with their defaults"},
}
"""By how a label begins, and what a line has: why the answers differ."""

_LEFT_OUT = {
    "throttle_time",
    "error_message",
    "cluster_id",
    "host",
    "last_timestamp",
    "transaction_start_time",
    "__type__",
}
_IN_ORDER = {"replica_nodes", "replicas", "adding_replicas", "removing_replicas"}
_NOW_MS = 600_000
_SOME = {"session_id", "member_id", "total_bytes", "usable_bytes", "log_dir", "documentation"}


def plain(value: Any, side: Side, name: str = "") -> Any:
    """An answer without what is a cluster's own, and without an order that means nothing."""
    if hasattr(value, "__flexible__"):
        kept = [field.name for field in fields(value) if field.name not in _LEFT_OUT]
        shown = {field: plain(getattr(value, field), side, field) for field in kept}
        if type(value).__name__ == "PartitionProduceResponse" and value.error_code:
            shown["log_start_offset"] = -1  # Kafka fills it in or not, by how far the batch got
        if type(value).__name__ == "FetchResponse":  # Kafka names a topic twice that has errors and records
            shown["responses"] = _by_partition(shown["responses"])
        return shown
    if isinstance(value, tuple):
        items = [plain(item, side, name) for item in value]
        return items if name in _IN_ORDER else sorted(items, key=str)
    if isinstance(value, uuid.UUID):
        return side.named(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, datetime.datetime):
        return "a time"
    if isinstance(value, datetime.timedelta):
        return int(value.total_seconds() * 1000)
    if name == "controller_id":
        return "a broker" if value >= 0 else value
    if name == "port":
        return side.at_port(value)
    if name in _SOME:
        return "some" if value not in (None, "", 0, -1) else value
    if name == "producer_id":
        return "some" if value >= 0 else value
    if name == "timestamp" and abs(value - time.time() * 1000) < _NOW_MS:
        return "now"
    if isinstance(value, str):
        return side.without_prefix(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _by_partition(topics: list[Any]) -> list[Any]:
    found = [
        {"topic": topic.get("topic") or topic.get("topic_id")} | partition
        for topic in topics
        for partition in topic["partitions"]
    ]
    return sorted(found, key=str)


def difference(kafka: Any, ours: Any, where: str = "") -> list[str]:
    """Where two plain answers part."""
    if isinstance(kafka, dict) and isinstance(ours, dict) and kafka.keys() == ours.keys():
        return [line for key in kafka for line in difference(kafka[key], ours[key], f"{where}.{key}")]
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        pairs = enumerate(zip(kafka, ours, strict=True))
        return [line for number, (a, b) in pairs for line in difference(a, b, f"{where}[{number}]")]
    return [] if kafka == ours else [f"{where or 'answer'}: Kafka {kafka!r}, ours {ours!r}"]


def explanation(label: str, line: str) -> str | None:
    reasons = (whys for start, whys in EXPLAINED.items() if label.startswith(start))
    return next((why for whys in reasons for part, why in whys.items() if part in line), None)


class Report:
    def __init__(self, show_all: bool) -> None:
        self.asked: Counter[str] = Counter()
        self.unexplained = 0
        self._show_all = show_all
        self._last = ""

    def compare(self, section: str, ask: Ask, version: int, sides: Iterable[Side]) -> None:
        kafka, ours = (
            ask.shown(plain(side.call(ask.at(side), ask.key, version, ask.values(side)), side))
            for side in sides
        )
        self.asked[section] += 1
        lines = [(line, explanation(ask.label, line)) for line in difference(kafka, ours)]
        self.unexplained += any(why is None for _, why in lines)
        shown = [(line, why) for line, why in lines if why is None or self._show_all]
        if not shown:
            return
        found = "\n".join(f"    {line}{f' ({why})' if why else ''}" for line, why in shown)
        if found == self._last:  # the same at the next version or broker
            print(f"  {ask.label} v{version}: as above", flush=True)
            return
        self._last = found
        print(f"  {ask.label} v{version}\n{found}", flush=True)


def compare_all(sides: list[Side], only: str, report: Report) -> None:
    for name, section in SECTIONS.items():
        if only not in name:
            continue
        print(f"{name}:", flush=True)
        for ask in section(sides):
            for version in ask.versions or sides[0].versions(ask.key):
                report.compare(name, ask, version, sides)
        print(f"  {report.asked[name]} answers", flush=True)


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--only", default="", metavar="TEXT", help="sections whose name has this")
    parser.add_argument("--all", action="store_true", help="also what is explained")
    args = parser.parse_args()
    report = Report(args.all)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        kafka = KafkaCluster(folder / "kafka")
        try:
            kafka.start()
            with OurCluster(folder / "ours") as ours:
                compare_all([Side(kafka), Side(ours)], args.only, report)
        finally:
            kafka.stop()
    sys.exit(f"{report.unexplained} answers differ" if report.unexplained else 0)


if __name__ == "__main__":
    main()
