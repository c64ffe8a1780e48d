"""A subscription as its topic holds it: the engine, where its position is kept, and how fast it goes."""

from anabranch.base.clock import Clock
from anabranch.base.rates import Meter
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.delay import DelayView
from anabranch.subscriptions.durable import DurableCursor
from anabranch.subscriptions.subscription import Subscription

Counters = tuple[int, int, int, int]
_NONE: Counters = (0, 0, 0, 0)


class Held:
    __slots__ = (
        "_clock",
        "_gone",
        "_meter",
        "_meters",
        "_told",
        "delay",
        "durable",
        "last_active_ms",
        "subscription",
    )

    def __init__(self, subscription: Subscription, durable: DurableCursor | None, clock: Clock) -> None:
        self.subscription = subscription
        self.durable = durable
        self.delay: DelayView | None = None
        self.last_active_ms = clock.now_ms()
        self._clock = clock
        self._told: set[Consumer] = set()  # that the topic has ended
        self._meter = Meter(4, clock.monotonic())
        self._meters: dict[Consumer, Meter] = {}
        self._gone = _NONE  # what consumers that left had counted

    @property
    def cursor(self) -> Cursor:
        return self.subscription.cursor

    @property
    def is_durable(self) -> bool:
        return self.durable is not None

    def attached(self, consumer: Consumer) -> None:
        self.last_active_ms = self._clock.now_ms()
        self._meters[consumer] = Meter(4, self._clock.monotonic())

    def not_told(self) -> list[Consumer]:
        """Consumers that have not heard yet that there is nothing more to come; they have now."""
        consumers = set(self.subscription.consumers)
        news = [consumer for consumer in consumers if consumer not in self._told]
        self._told = consumers
        return news

    # --- counting: messages, bytes, messages redelivered, messages acknowledged

    def totals(self) -> Counters:
        """Of all consumers there ever were."""
        totals = self._gone
        for consumer in list(self._meters):
            totals = _sum(totals, _counters(consumer))
            if not consumer.is_attached:
                self._gone = _sum(self._gone, _counters(consumer))
                del self._meters[consumer]
        return totals

    def look(self, now_s: float) -> bool:
        """Work out rates.  False if nothing has moved for a while."""
        for consumer, meter in self._meters.items():
            meter.look(_counters(consumer), now_s)
        return self._meter.look(self.totals(), now_s)

    @property
    def rates(self) -> tuple[float, ...]:
        return self._meter.rates

    def consumer_rates(self, consumer: Consumer) -> tuple[float, ...]:
        return self._meters[consumer].rates


def _counters(consumer: Consumer) -> Counters:
    return (
        consumer.messages_out,
        consumer.bytes_out,
        consumer.messages_redelivered,
        consumer.messages_acked,
    )


def _sum(a: Counters, b: Counters) -> Counters:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]
