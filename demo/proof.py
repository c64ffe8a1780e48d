"""The proof that nothing was lost, doubled or made up: the pipeline's results against the shop's own books.

    sent            =  clean + late + dead letters, each record in the one heap where it belongs
    revenue         =  the books' sums, minute by minute, to the cent; in the table and in the topic
    sessions        =  the books' sessions, one by one
    behind          =  0

Everything is compared row for row as bags, so that two errors cannot make up for each other.  `Results` says
what is compared; where it comes from is the business of `results`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from demo.ledger import Ledger, Minute, Session, Takings
from demo.shop import CLICKS, ORDERS, Sent

MOST_REPLICAS = 3
_EXAMPLES = 2


class Event(NamedTuple):
    """A sound record, as far as it is told apart from others."""

    topic: str
    user: str
    at_ms: int
    name: str
    cents: int
    currency: str


class DeadLetter(NamedTuple):
    topic: str
    value: bytes


class Results(NamedTuple):
    """What the pipeline has made."""

    clean: Counter[Event]
    late: Counter[Event]
    dead: Counter[DeadLetter]
    reasons: Counter[str]
    revenue: Counter[tuple[Minute, Takings]]
    announced: Counter[tuple[Minute, Takings]]
    sessions: Counter[Session]
    behind: int | None


class Claim(NamedTuple):
    """What came of it, in words, and whether that is well."""

    holds: bool
    words: str


def prove(ledger: Ledger, acknowledged: Mapping[str, int], results: Results) -> list[Claim]:
    minutes = Counter(ledger.revenue.items())
    return [
        *(_heaps(topic, ledger, acknowledged[topic], results) for topic in (CLICKS, ORDERS)),
        _same("clean records", events(ledger.on_time), results.clean),
        _same("late records", events(ledger.late), results.late),
        _same("dead letters", dead_letters(ledger.flawed), results.dead),
        _same("minutes in the table of revenue", minutes, results.revenue),
        _same("minutes announced on the topic of revenue", minutes, results.announced),
        _same("sessions", ledger.sessions, results.sessions),
        _total(minutes, results.revenue),
        Claim(
            results.behind == 0, f"lag: {results.behind} records in the topics that the pipeline has not read"
        ),
    ]


def prove_replicas(in_sync: Counter[int], brokers: int) -> Claim:
    """`in_sync` counts partitions by how many brokers have all of them."""
    return Claim(
        set(in_sync) == {min(brokers, MOST_REPLICAS)},
        "; ".join(f"{count:,} partitions in sync on {on} brokers" for on, count in sorted(in_sync.items())),
    )


def events(records: Iterable[Sent]) -> Counter[Event]:
    return Counter(
        Event(one.topic, one.key, one.at_ms, one.name, one.amount_cents, one.currency) for one in records
    )


def dead_letters(records: Iterable[Sent]) -> Counter[DeadLetter]:
    return Counter(DeadLetter(one.topic, one.value) for one in records)


def _heaps(topic: str, ledger: Ledger, acknowledged: int, results: Results) -> Claim:
    heaps: list[Counter[Event] | Counter[DeadLetter]] = [results.clean, results.late, results.dead]
    clean, late, dead = (sum(count for one, count in heap.items() if one.topic == topic) for heap in heaps)
    sent = ledger.sent[topic]
    return Claim(
        sent == acknowledged == clean + late + dead,
        f"{topic}: {sent:,} sent, {acknowledged:,} acknowledged = "
        f"{clean:,} clean + {late:,} late + {dead:,} dead letters",
    )


def _total(expected: Counter[tuple[Minute, Takings]], found: Counter[tuple[Minute, Takings]]) -> Claim:
    sums = ", ".join(f"{cents / 100:,.2f} {currency}" for currency, cents in sorted(_sums(found).items()))
    return Claim(_sums(expected) == _sums(found), f"revenue as the sender and the pipeline sum it: {sums}")


def _sums(minutes: Counter[tuple[Minute, Takings]]) -> Counter[str]:
    """Cents by currency."""
    sums: Counter[str] = Counter()
    for (minute, takings), count in minutes.items():
        sums[minute.currency] += takings.cents * count
    return sums


def _same(what: str, expected: Counter[Any], found: Counter[Any]) -> Claim:
    missing, extra = expected - found, found - expected
    if not missing and not extra:
        return Claim(True, f"{expected.total():,} {what}, row for row")
    words = f"{what}: {missing.total():,} missing, {extra.total():,} too many"
    for name, rows in (("missing", missing), ("too many", extra)):
        for row in list(rows)[:_EXAMPLES]:
            words += f"\n    {name}: {row}"
    return Claim(False, words)
