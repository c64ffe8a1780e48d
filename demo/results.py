"""What the pipeline has left behind, read without Spark: tables as Parquet, topics as any client would.

clicks_clean, orders_clean       sound records; `late` marks those that were sent too late
late_clicks, late_orders         those
sessions, revenue_per_minute     of what was on time, once it was over
topic revenue                    the minutes again, as they closed
topic shop-dead-letters          what made no sense, as it came, with the reason in its headers
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.ledger import Minute, Session, Takings
from demo.parquet import read_table
from demo.proof import DeadLetter, Event, Results
from demo.shop import CLICKS, ORDERS

REVENUE = "revenue"
DEAD_LETTERS = "shop-dead-letters"
_PATIENCE_SECONDS = 30
_COLUMNS = {CLICKS: ["user", "at", "page"], ORDERS: ["user", "at", "order", "amount", "currency"]}


def read_results(tables: Path, kafka: str, behind: int | None) -> Results:
    dead = list(_committed(kafka, DEAD_LETTERS))
    headers = [{name: value.decode() for name, value in message.headers() or ()} for message in dead]
    clean: Counter[Event] = Counter()
    late: Counter[Event] = Counter()
    for topic in (CLICKS, ORDERS):
        rows = read_table(tables / f"{topic}_clean", [*_COLUMNS[topic], "late"])
        clean.update(_event(topic, row) for row in rows if not row["late"])
        late.update(_event(topic, row) for row in read_table(tables / f"late_{topic}", _COLUMNS[topic]))
    return Results(
        clean=clean,
        late=late,
        dead=Counter(
            DeadLetter(header["dead-letter.topic"], message.value() or b"")
            for header, message in zip(headers, dead, strict=True)
        ),
        reasons=Counter(header["dead-letter.reason"] for header in headers),
        revenue=Counter(_takings(row) for row in read_table(tables / "revenue_per_minute", _MINUTE)),
        announced=Counter(_announcement(message.value() or b"") for message in _committed(kafka, REVENUE)),
        sessions=Counter(
            Session(row["user"], row["start"], row["end"], row["clicks"])
            for row in read_table(tables / "sessions", ["user", "start", "end", "clicks"])
        ),
        behind=behind,
    )


def partitions_in_sync(kafka: str) -> Counter[int]:
    """Partitions of all topics, the cluster's own too, by how many brokers are in sync."""
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=_PATIENCE_SECONDS).topics
    return Counter(len(one.isrs) for topic in topics.values() for one in topic.partitions.values())


_MINUTE = ["minute", "currency", "orders", "amount"]


def _event(topic: str, row: dict[str, Any]) -> Event:
    if topic == CLICKS:
        return Event(topic, row["user"], row["at"], row["page"], 0, "")
    return Event(topic, row["user"], row["at"], row["order"], _cents(row["amount"]), row["currency"])


def _takings(row: dict[str, Any]) -> tuple[Minute, Takings]:
    return Minute(row["minute"], row["currency"]), Takings(row["orders"], _cents(row["amount"]))


def _announcement(value: bytes) -> tuple[Minute, Takings]:
    row = json.loads(value, parse_float=Decimal, parse_int=Decimal)
    minute_ms = int(datetime.fromisoformat(row["minute"]).timestamp() * 1000)
    return Minute(minute_ms, row["currency"]), Takings(int(row["orders"]), _cents(row["amount"]))


def _cents(amount: Decimal) -> int:
    return int(amount * 100)


def _committed(kafka: str, topic: str) -> Iterator[Message]:
    """Every committed record of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "demo-results",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log.connection.close": False,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=_PATIENCE_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while partitions:
            if time.monotonic() > deadline:
                raise SystemExit(f"{topic} could not be read to its end within {_PATIENCE_SECONDS} s")
            for message in consumer.consume(1_000, 0.5):
                if message.error() is None:
                    yield message
                else:
                    partitions.discard(message.partition())
    finally:
        consumer.close()
