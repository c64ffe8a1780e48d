"""A subscription as its topic holds it: the engine, where its position is kept, and how fast it goes."""

from anabranch.base.clock import Clock
from anabranch.base.rates import Meter
from anabranch.subscriptions.consumer import Consumer
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.delay import DelayView
from anabranch.subscriptions.durable import DurableCursor
from anabranch.subscriptions.subscription import Subscription


class Held:
    __slots__ = ("_meter", "_told", "delay", "durable", "last_active_ms", "subscription")

    def __init__(self, subscription: Subscription, durable: DurableCursor | None, clock: Clock) -> None:
        self.subscription = subscription
        self.durable = durable
        self.delay: DelayView | None = None
        self.last_active_ms = clock.now_ms()
        self._told: set[Consumer] = set()  # that the topic has ended
        self._meter = Meter(2, clock.monotonic())

    @property
    def cursor(self) -> Cursor:
        return self.subscription.cursor

    @property
    def is_durable(self) -> bool:
        return self.durable is not None

    def attached(self, now_ms: int) -> None:
        self.last_active_ms = now_ms

    def not_told(self) -> list[Consumer]:
        """Consumers that have not heard yet that there is nothing more to come; they have now."""
        consumers = set(self.subscription.consumers)
        news = [consumer for consumer in consumers if consumer not in self._told]
        self._told = consumers
        return news

    def look(self, now_s: float) -> bool:
        consumers = self.subscription.consumers
        counters = (
            sum([consumer.messages_out for consumer in consumers]),
            sum([consumer.bytes_out for consumer in consumers]),
        )
        return self._meter.look(counters, now_s)

    @property
    def rates(self) -> tuple[float, ...]:
        """Messages and bytes a second that go out."""
        return self._meter.rates
