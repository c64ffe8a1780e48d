"""The results as somebody would want to see them: a few rows of each table."""

from collections.abc import Sequence
from typing import NamedTuple

from demo.proof import Results
from demo.shop import CLICKS, ORDERS, iso

ROWS = 5


class Extract(NamedTuple):
    """Some rows of a table."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]


def extracts(results: Results) -> list[Extract]:
    return [_revenue(results), _sessions(results), _late(results), _dead_letters(results)]


def _revenue(results: Results) -> Extract:
    best = sorted(results.revenue, key=lambda row: (-row[1].cents, row[0]))[:ROWS]
    rows = [
        (iso(minute.start_ms)[11:16], minute.currency, f"{taken.orders:,}", f"{taken.cents / 100:,.2f}")
        for minute, taken in best
    ]
    title = f"revenue_per_minute: {results.revenue.total():,} rows, the best"
    return Extract(title, ("minute", "currency", "orders", "amount"), rows)


def _sessions(results: Results) -> Extract:
    longest = sorted(results.sessions, key=lambda session: (-session.clicks, session))[:ROWS]
    rows = [(one.user, _clock(one.start_ms), _clock(one.end_ms), f"{one.clicks:,}") for one in longest]
    title = f"sessions: {results.sessions.total():,} rows, the busiest"
    return Extract(title, ("user", "start", "end", "clicks"), rows)


def _late(results: Results) -> Extract:
    orders = sorted(event for event in results.late if event.topic == ORDERS)[:ROWS]
    rows = [
        (one.name, one.user, _clock(one.at_ms), f"{one.cents / 100:,.2f}", one.currency) for one in orders
    ]
    clicks = sum(event.topic == CLICKS for event in results.late.elements())
    title = f"late_orders: {results.late.total() - clicks:,} rows (and {clicks:,} late_clicks)"
    return Extract(title, ("order", "user", "at", "amount", "currency"), rows)


def _dead_letters(results: Results) -> Extract:
    rows = [(reason, f"{count:,}") for reason, count in results.reasons.most_common()]
    title = f"shop-dead-letters: {results.dead.total():,} records"
    return Extract(title, ("reason", "records"), rows)


def _clock(time_ms: int) -> str:
    return iso(time_ms)[11:19]
