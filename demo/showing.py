"""A shop's morning, from its clients through the broker and a pipeline on Spark to tables that are proved.

    confluent-kafka  --->  clicks  --->                       --->  sessions, revenue_per_minute, late_…
                                         pipeline on Spark
    pulsar-client    --->  orders  --->                       --->  revenue, shop-dead-letters

The broker is a process of its own, or a cluster of several; the pipeline is the example project that
`anabranch pipeline init --example` makes, run while the shop is open.  In the end its results are compared
with the shop's own books.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from demo.broker import Brokers, brokers
from demo.extracts import extracts
from demo.feed import Feed
from demo.ledger import Ledger
from demo.pipeline import Pipeline
from demo.proof import prove, prove_replicas
from demo.results import partitions_in_sync, read_results
from demo.screen import Moment, Sending, line, show_claims, show_rows, watch
from demo.shop import CLICKS, ORDERS, iso, morning

BESIDES_SECONDS = 420
"""How long it may take besides the time that the shop is open: on two busy cores Spark needs minutes."""

_CLIENTS = {CLICKS: "confluent-kafka", ORDERS: "pulsar-client"}


def show(records: int, rate: float, seed: int, count: int, cores: int, keep: Path | None) -> bool:
    """Shows it all, on `count` brokers; whether the proof holds."""
    console = Console(highlight=False, soft_wrap=True)
    started = time.monotonic()
    sent = morning(records, seed)
    ledger = Ledger(sent)
    with _folder(keep) as folder, brokers(folder, count) as at:
        console.print(
            f"[green]✓[/] {at.title} from nothing to serving in {at.start_seconds:.2f} s: "
            f"Kafka [bold]{at.kafka}[/], Pulsar [bold]{at.pulsar}[/], HTTP [bold]{at.http}[/]"
        )
        feed = Feed(sent, rate, at.kafka, at.pulsar)
        feed.make_topics()
        pipeline = Pipeline(folder, at.kafka, cores)
        try:
            _stream(console, feed, pipeline, ledger, len(sent) / rate + BESIDES_SECONDS)
            pipeline.stop()
            pipeline.settle()
        finally:
            feed.stop()
            pipeline.stop()
        holds = _conclude(console, feed, pipeline, ledger, at)
    word = "[green]✓[/] proved" if holds else "[red]✗[/] not proved"
    console.print(f"{word}, after {time.monotonic() - started:.0f} s in all")
    return holds


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as folder:
        yield Path(folder)


def _stream(console: Console, feed: Feed, pipeline: Pipeline, ledger: Ledger, most_seconds: float) -> None:
    """Starts the pipeline and opens the shop, until it is closed and the pipeline has seen everything.

    SystemExit, with how it stands, if that takes more than `most_seconds`.
    """
    closed_at: datetime | None = None
    deadline = time.monotonic() + most_seconds

    def moment() -> Moment:
        latest = max((record.sent_ms for record in feed.latest.values()), default=0)
        story = "closed" if feed.is_over else iso(latest)[11:19] if latest else "not open yet"
        sending = [
            Sending(client, topic, feed.acknowledged[topic], ledger.sent[topic])
            for topic, client in _CLIENTS.items()
        ]
        return Moment(story, sending, pipeline.words, pipeline.flows())

    def is_over() -> bool:
        nonlocal closed_at
        pipeline.look()
        if time.monotonic() > deadline:
            raise SystemExit(f"not over after {most_seconds:.0f} s:\n{line(moment())}")
        if pipeline.has_begun and not feed.has_begun:
            feed.start()
        if feed.is_over and closed_at is None:
            closed_at = datetime.now(UTC)
        return bool(feed.failures) or (closed_at is not None and pipeline.has_seen_all_before(closed_at))

    pipeline.start()
    watch(console, moment, is_over)


def _conclude(console: Console, feed: Feed, pipeline: Pipeline, ledger: Ledger, at: Brokers) -> bool:
    """Shows the results and the proof; whether it holds."""
    results = read_results(pipeline.tables, at.kafka, pipeline.behind())
    for extract in extracts(results):
        console.print()
        show_rows(console, *extract)
    console.print()
    console.print("anabranch pipeline status", style="bold")
    console.print(pipeline.status(), markup=False)
    console.print()
    for failure in feed.failures[:3]:
        console.print(f"[red]✗[/] {failure}")
    claims = prove(ledger, feed.acknowledged, results)
    if len(at.pids) > 1:
        claims.append(prove_replicas(partitions_in_sync(at.kafka), len(at.pids)))
    show_claims(console, claims)
    if memory := at.memory_mb():
        console.print(f"[green]✓[/] {memory:.0f} MB are held by {at.title} after all that")
    return not feed.failures and all(claim.holds for claim in claims)
