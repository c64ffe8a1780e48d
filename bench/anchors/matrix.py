"""Comparison matrix: one row per load, with what is to be reached as ratios ours / Kafka's.

The figures of a row are paths into a result of the load generator; `cpu_per_record` is worked out from two
of them, since two runs of a row need not have sent the same number of records.
"""

from dataclasses import dataclass, field
from typing import Any

AT_LEAST, AT_MOST = ">=", "<="
Target = tuple[str, float]


@dataclass(frozen=True)
class Row:
    name: str
    mode: str
    records: int
    options: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)

    def load(self, share: float) -> list[str]:
        """The load generator's arguments, with `share` of the records."""
        count = max(1000, int(self.records * share))
        return ["--mode", self.mode, "--records", str(count), *(x for kv in self.options.items() for x in kv)]


def throughput(least: float, cpu: float) -> dict[str, Target]:
    return {"records_s": (AT_LEAST, least), "cpu_per_record": (AT_MOST, cpu)}


LATENCY = dict.fromkeys(("ack_ms.p50", "ack_ms.p99", "e2e_ms.p50", "e2e_ms.p99"), (AT_MOST, 1.0))
FIGURES = ("records_s", "cpu_per_record", "broker_peak_rss_mb", *LATENCY)

ROWS = (
    *(
        Row(
            f"produce 1 KB, {partitions} partitions, acks={acks}",
            "produce",
            500_000,
            {"--size": "1000", "--partitions": str(partitions), "--acks": acks},
            throughput(1.0, 0.7),
        )
        for partitions in (1, 6)
        for acks in ("1", "all")
    ),
    Row("produce 100 B, linger 5 ms", "produce", 2_000_000, {"--size": "100"}, throughput(1.0, 0.7)),
    Row(
        "produce 100 B, linger 0",
        "produce",
        1_000_000,
        {"--size": "100", "--linger-ms": "0"},
        throughput(2.0, 0.3),
    ),
    Row("fetch 1 KB", "consume", 1_000_000, {"--size": "1000"}, throughput(1.15, 0.8)),
    Row("fetch 100 B", "consume", 4_000_000, {"--size": "100"}, throughput(1.15, 0.8)),
    *(
        Row(
            f"one record a request, {clients} connections",
            "single",
            20_000 * min(clients, 2),
            {
                "--size": "100",
                "--acks": "1",
                "--clients": str(clients),
                "--partitions": str(clients),
                "--max-seconds": "10",
            },
            throughput(1.15, 0.5) | {"ack_ms.p50": (AT_MOST, 0.7)},
        )
        for clients in (1, 4)
    ),
    *(
        Row(
            f"1,000 records/s, linger {linger_ms}",
            "latency",
            8_000,
            {"--size": "1000", "--acks": "all", "--rate": "1000", "--linger-ms": linger_ms},
            dict(LATENCY),
        )
        for linger_ms in ("0", "5")
    ),
)


def figure(result: dict[str, Any], path: str) -> float | None:
    if path == "cpu_per_record":
        cpu_s, records = result.get("broker_cpu_s"), result.get("records")
        return cpu_s / records if cpu_s and records else None
    value: Any = result
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if value else None


def met(target: Target, ratio: float) -> bool:
    sign, bound = target
    return ratio >= bound if sign == AT_LEAST else ratio <= bound
