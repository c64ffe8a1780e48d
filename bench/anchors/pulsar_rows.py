"""Rows of the comparison with Apache Pulsar: one per load, with targets as ratios ours / Pulsar's.

Figures are paths into a result of the load generator, as in matrix.py.
"""

from matrix import AT_LEAST, AT_MOST, Row, Target

FIGURES = (
    "records_per_s",
    "cpu_per_record",
    "broker_peak_rss_mb",
    "ack_ms.p50",
    "ack_ms.p99",
    "end_to_end_ms.p50",
    "end_to_end_ms.p99",
    "redelivery_ms.p50",
    "seek_ms.p50",
    "seek_to_message_ms.p50",
)


def rate(least: float, cpu: float | None = None) -> dict[str, Target]:
    wanted: dict[str, Target] = {"records_per_s": (AT_LEAST, least)}
    if cpu is not None:
        wanted["cpu_per_record"] = (AT_MOST, cpu)
    return wanted


def _produce(name: str, records: int, cpu: float, **options: str) -> Row:
    told = {f"--{key.replace('_', '-')}": value for key, value in options.items()}
    return Row(name, "produce", records, told, rate(1.0, cpu))


ROWS = (
    _produce("produce 1 KB", 400_000, 0.7, size="1024"),
    _produce("produce 1 KB, 6 partitions", 400_000, 0.7, size="1024", partitions="6"),
    _produce("produce 100 B", 600_000, 0.7, size="100"),
    _produce("produce 100 B, 6 partitions", 600_000, 0.7, size="100", partitions="6"),
    Row("produce 1 KB un-batched", "produce", 150_000, {"--no-batching": ""}, rate(1.0, 1.0)),
    Row("consume 1 KB", "consume", 400_000, {"--size": "1024"}, rate(1.0, 0.7)),
    Row("consume 100 B", "consume", 1_000_000, {"--size": "100"}, rate(1.0, 0.7)),
    Row("one in flight", "single", 3_000, {}, rate(6.0) | {"ack_ms.p50": (AT_MOST, 0.15)}),
    Row(
        "1,000 messages/s",
        "latency",
        8_000,
        {"--rate": "1000", "--no-batching": ""},
        {"ack_ms.p50": (AT_MOST, 0.5), "end_to_end_ms.p50": (AT_MOST, 0.2)},
    ),
    Row("shared, 4 consumers, un-batched", "shared", 120_000, {"--no-batching": ""}, rate(1.0)),
    *(
        Row(
            f"key_shared, 4 consumers, {how}",
            "shared",
            80_000,
            {"--sub-type": "key_shared", flag: ""},
            rate(1.2),
        )
        for how, flag in (("un-batched", "--no-batching"), ("key-batched", "--batching"))
    ),
    Row("negative acks", "nack", 5_000, {}),
    Row("seek", "seek", 10_000, {}),  # of its 0.11 s, 0.10 are the client's own
)
