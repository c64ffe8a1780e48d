"""The shop whose morning the demo replays: who looks, who buys, what goes wrong on the way.

    a visit     09:14:02 /      09:14:31 /product/17      09:15:10 /cart      order o-000042, 12.50 EUR
    is sent     at once         at once                   21 minutes later: the phone was in a tunnel

A visit is a walk through pages with pauses between them; some end in an order.  A few records are sent long
after they happened (`is_late`), a few are broken (`flaw`), as in any stream that was not made for a show.
`morning` gives them all, in the order in which they are sent.

The last to come is a customer an hour after all others: by then everything before is over, and the pipeline,
which waits for what may still be under way, can say so.

Everything comes from the seed: the same numbers give the same bytes, today and next year.  Times are those of
the story; how fast it is told is up to `feed`.
"""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

CLICKS = "clicks"
ORDERS = "orders"

OPENING_MS = int(datetime(2026, 3, 2, 9, tzinfo=UTC).timestamp() * 1000)
MORNING_MS = 3 * 3600 * 1000
AFTER_ALL_MS = 3600 * 1000
ON_TIME_MS = 10 * 60 * 1000  # what is sent later than this is late; the pipeline has the same rule
RECORDS_OF_A_VISIT = 6.8  # on average, measured
VISITS_OF_A_USER = 3
PRODUCTS = 200
ORDERING = 0.4
LATE = 0.02
FLAWED = 0.01
CURRENCIES = ("EUR", "EUR", "EUR", "USD", "GBP")


class Sent(NamedTuple):
    """A record as it goes to the broker, and what the sender knows about it."""

    topic: str
    key: str
    value: bytes
    at_ms: int
    sent_ms: int
    name: str = ""  # the page of a click, the number of an order
    amount_cents: int = 0
    currency: str = ""
    flaw: str = ""

    @property
    def is_late(self) -> bool:
        return self.sent_ms - self.at_ms > ON_TIME_MS


Fields = dict[str, object]


def morning(records: int, seed: int) -> list[Sent]:
    """About so many records of one morning, in the order in which they are sent."""
    chance = random.Random(seed)
    visits = max(1, round(records / RECORDS_OF_A_VISIT))
    users = max(1, visits // VISITS_OF_A_USER)
    prices = [chance.randrange(199, 19_999) for _ in range(PRODUCTS)]
    number = iter(range(10**9))
    sent = [
        record
        for _ in range(visits)
        for record in _visit(chance, f"user-{chance.randrange(users):05}", prices, number)
    ]
    sent.sort(key=lambda record: (record.sent_ms, record.value))
    return [*sent, *_last_customer(max(record.sent_ms for record in sent) + AFTER_ALL_MS, next(number))]


def _last_customer(at_ms: int, number: int) -> Iterator[Sent]:
    user, time = "user-last", {"at": iso(at_ms), "sent": iso(at_ms)}
    click = {"user": user, "page": "/", **time}
    yield Sent(CLICKS, user, json.dumps(click).encode(), at_ms, at_ms, "/")
    name = f"o-{number:06}"
    order = {"order": name, "user": user, "amount": 1.0, "currency": "EUR", **time}
    yield Sent(ORDERS, user, json.dumps(order).encode(), at_ms, at_ms, name, 100, "EUR")


def _visit(chance: random.Random, user: str, prices: list[int], number: Iterator[int]) -> Iterator[Sent]:
    at_ms = OPENING_MS + chance.randrange(MORNING_MS)
    offline_ms = 0
    if chance.random() < LATE:
        offline_ms = chance.randrange(ON_TIME_MS + 60_000, 4 * ON_TIME_MS)
    product = chance.randrange(PRODUCTS)
    pages = ["/"]
    for _ in range(chance.randrange(2, 9)):
        product = chance.randrange(PRODUCTS)
        pages.append(f"/product/{product}")
    ordering = chance.random() < ORDERING
    if ordering:
        pages.append("/cart")
    for page in pages:
        click: Fields = {"user": user, "page": page}
        yield _sent(chance, CLICKS, user, click, at_ms, offline_ms)
        at_ms += chance.randrange(2_000, 90_000)
    if ordering:
        cents = prices[product] * chance.randrange(1, 4)
        order: Fields = {"order": f"o-{next(number):06}", "user": user, "amount": cents / 100}
        order["currency"] = chance.choice(CURRENCIES)
        yield _sent(chance, ORDERS, user, order, at_ms, offline_ms, cents)


def _sent(
    chance: random.Random,
    topic: str,
    user: str,
    fields: Fields,
    at_ms: int,
    offline_ms: int,
    cents: int = 0,
) -> Sent:
    sent_ms = at_ms + offline_ms + chance.randrange(5, 2_000)
    fields = {**fields, "at": iso(at_ms), "sent": iso(sent_ms)}
    if chance.random() < FLAWED:
        flaw = chance.choice(sorted(FLAWS[topic]))
        return Sent(topic, user, FLAWS[topic][flaw](fields), at_ms, sent_ms, flaw=flaw)
    name = str(fields["page"] if topic == CLICKS else fields["order"])
    currency = str(fields.get("currency", ""))
    return Sent(topic, user, json.dumps(fields).encode(), at_ms, sent_ms, name, cents, currency)


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _with(**changes: object) -> Callable[[Fields], bytes]:
    return lambda fields: json.dumps({**fields, **changes}).encode()


def _without(name: str) -> Callable[[Fields], bytes]:
    return lambda fields: json.dumps({key: value for key, value in fields.items() if key != name}).encode()


def _torn(fields: Fields) -> bytes:
    return json.dumps(fields).encode()[:-9]


_ANY = {"torn": _torn, "no user": _without("user"), "no time": _with(at="yesterday")}
FLAWS: dict[str, dict[str, Callable[[Fields], bytes]]] = {
    CLICKS: _ANY,
    ORDERS: {**_ANY, "less than nothing": _with(amount=-1.0), "odd currency": _with(currency="???")},
}
