"""What must come out, worked out from what was sent, without Spark: the shop's own books.

    records sent  =  clean  +  late  +  dead letters           for each topic
    revenue       =  the sum of clean orders, by minute and currency
    sessions      =  a user's clean clicks with less than ten minutes between one and the next

Minutes and sessions count once they are over: once a record twenty minutes younger than their end has come.
Money is whole cents, times are whole milliseconds: nothing here rounds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from demo.shop import CLICKS, ORDERS, Sent

GAP_MS = 10 * 60 * 1000
PATIENCE_MS = 20 * 60 * 1000
_MINUTE_MS = 60_000


class Minute(NamedTuple):
    start_ms: int
    currency: str


class Takings(NamedTuple):
    orders: int
    cents: int


class Session(NamedTuple):
    user: str
    start_ms: int
    end_ms: int  # the last click, and the gap after it, as Spark has it
    clicks: int


class Ledger:
    """The books of `records`, complete when made."""

    def __init__(self, records: Iterable[Sent]) -> None:
        kept = list(records)
        self.sent = Counter(record.topic for record in kept)
        self.flawed = [record for record in kept if record.flaw]
        sound = [record for record in kept if not record.flaw]
        self.late = [record for record in sound if record.is_late]
        self.on_time = [record for record in sound if not record.is_late]
        self.revenue = revenue([record for record in self.on_time if record.topic == ORDERS])
        self.sessions = sessions([record for record in self.on_time if record.topic == CLICKS])


def revenue(orders: Sequence[Sent]) -> dict[Minute, Takings]:
    """What was taken in each minute that is over, by currency."""
    takings: dict[Minute, Takings] = {}
    for order in orders:
        minute = Minute(order.at_ms - order.at_ms % _MINUTE_MS, order.currency)
        count, cents = takings.get(minute, (0, 0))
        takings[minute] = Takings(count + 1, cents + order.amount_cents)
    over_ms = _over_ms(orders)
    return {minute: taken for minute, taken in takings.items() if minute.start_ms + _MINUTE_MS <= over_ms}


def sessions(clicks: Sequence[Sent]) -> Counter[Session]:
    """Each user's clicks, parted wherever there is a gap; those sessions that are over."""
    times: dict[str, list[int]] = defaultdict(list)
    for click in clicks:
        times[click.key].append(click.at_ms)
    over_ms = _over_ms(clicks)
    found = (session for user, at in times.items() for session in _parted(user, sorted(at)))
    return Counter(session for session in found if session.end_ms <= over_ms)


def _over_ms(records: Sequence[Sent]) -> int:
    """What ends by then is over."""
    return max((record.at_ms for record in records), default=0) - PATIENCE_MS


def _parted(user: str, times_ms: list[int]) -> list[Session]:
    found: list[Session] = []
    for at_ms in times_ms:
        last = found[-1] if found else None
        if last is not None and at_ms <= last.end_ms:
            found[-1] = last._replace(end_ms=at_ms + GAP_MS, clicks=last.clicks + 1)
        else:
            found.append(Session(user, at_ms, at_ms + GAP_MS, 1))
    return found
