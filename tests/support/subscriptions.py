"""A subscription on a log in memory, with time and turns in the test's hand."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from math import ceil

from anabranch.base.errors import OffsetOutOfRange
from anabranch.base.waiters import Waiter, Waiters
from anabranch.partition.entries import Entries
from anabranch.records.entries import Entry
from anabranch.records.pulsar_metadata_pb2 import MessageMetadata
from anabranch.subscriptions.acking import Ack
from anabranch.subscriptions.channel import Delivery
from anabranch.subscriptions.consumer import Consumer, HashRange, KeySharing
from anabranch.subscriptions.cursor import Cursor
from anabranch.subscriptions.kinds import SubscriptionKind
from anabranch.subscriptions.settings import SubscriptionSettings
from anabranch.subscriptions.subscription import Subscription
from anabranch.subscriptions.surroundings import Surroundings

_ids = count(1)


class Log:
    """Entries in memory, read as partition/entries.EntryReader reads them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0
        self.end = 0
        self.reads = 0
        self.splits = False
        self._waiters = Waiters()

    def append(self, messages: int = 1, **metadata: object) -> int:
        """An entry; the fields of its metadata by name."""
        fields = {"producer_name": "p", "sequence_id": self.end, "publish_time": 1, **metadata}
        parsed = MessageMetadata(**fields).SerializeToString()
        payload = memoryview(len(parsed).to_bytes(4, "big") + parsed + b"x" * 10 * messages)
        self.entries.append(Entry(self.end, messages, 0, 1, payload))
        self.end += messages
        self._waiters.wake()
        return self.end - messages

    def gap(self, size: int = 1) -> None:
        self.end += size
        self._waiters.wake()

    def trim(self, offset: int) -> None:
        self.start = offset
        self.entries = [entry for entry in self.entries if entry.end > offset]

    def read(self, offset: int, max_bytes: int) -> Entries:
        self.reads += 1
        offset = max(offset, self.start)
        found: list[Entry] = []
        size = 0
        for entry in self.entries:
            if entry.end <= offset:
                continue
            size += len(entry.payload)
            if found and size > max_bytes:
                return Entries(found, entry.offset)
            found.append(entry)
        return Entries(found, max(self.end, offset))

    def bounds(self, offset: int) -> tuple[int, int]:
        for entry in self.entries:
            if entry.end > offset:
                return (entry.offset, entry.end) if entry.offset <= offset else (offset, entry.offset)
        if offset < self.end:
            return offset, self.end
        raise OffsetOutOfRange(f"there is no message at offset {offset}")

    def wait(self, waiter: Waiter) -> None:
        self._waiters.add(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)

    @property
    def waiters(self) -> int:
        return len(self._waiters)


class _Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Time:
    """A clock and an event loop that stand still until told."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[float, int, _Timer, Callable[[], None]]] = []
        self._ties = count()

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self._soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> _Timer:
        timer = _Timer()
        heapq.heappush(self._later, (self.ms + delay_s * 1000, next(self._ties), timer, callback))
        return timer

    def run(self, turns: int = 100_000) -> None:
        """Until nothing is left to do now."""
        while self._soon:
            turns -= 1
            assert turns > 0, "it never comes to rest"
            self._soon.pop(0)()

    def pass_ms(self, ms: int) -> None:
        self.run()
        end = self.ms + ms
        while self._later and self._later[0][0] <= end:
            at, _, timer, callback = heapq.heappop(self._later)
            self.ms = max(self.ms, ceil(at))
            if not timer.is_cancelled:
                callback()
                self.run()
        self.ms = end


class Client:
    """A consumer and its connection: what it was sent, in order."""

    def __init__(self, subscription: Subscription, name: str = "", **options: object) -> None:
        self.id = next(_ids)
        self.subscription = subscription
        self.received: list[Delivery] = []
        self.active: list[bool] = []
        self.is_connected = True
        self.writable = True
        self.consumer = Consumer(self.id, name or f"c{self.id}", self, **options)  # type: ignore[arg-type]

    # --- the connection's side

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        assert consumer is self.consumer
        assert consumer.is_attached
        assert self.writable
        assert deliveries
        self.received += deliveries

    def is_writable(self) -> bool:
        return self.writable

    def active_changed(self, consumer: Consumer, is_active: bool) -> None:
        self.active.append(is_active)

    def disconnect(self, consumer: Consumer) -> None:
        assert not consumer.is_attached
        self.is_connected = False

    # --- the client's side

    @property
    def offsets(self) -> list[int]:
        return [delivery.entry.offset for delivery in self.received]

    def take(self) -> list[int]:
        """The offsets received since this was last asked."""
        offsets = self.offsets
        self.received.clear()
        return offsets

    def flow(self, permits: int) -> None:
        self.subscription.flow(self.consumer, permits)

    def ack(self, *offsets: int, cumulative: bool = False) -> None:
        self.subscription.ack(self.consumer, [Ack(offset) for offset in offsets], cumulative=cumulative)

    def nack(self, *offsets: int) -> None:
        self.subscription.redeliver(self.consumer, offsets)

    def close(self) -> None:
        self.subscription.detach(self.consumer)


class Bench:
    """A log, time, and a subscription."""

    def __init__(
        self,
        kind: SubscriptionKind,
        *,
        mark_delete: int = 0,
        partition_index: int = -1,
        settings: SubscriptionSettings | None = None,
    ) -> None:
        self.kind = kind
        self.log = Log()
        self.time = Time()
        self.cursor = Cursor(mark_delete)
        self.subscription = Subscription(
            "sub",
            "persistent://public/default/t",
            partition_index,
            self.cursor,
            Surroundings(self.log, self.time, self.time),
            settings or SubscriptionSettings(),
        )

    def client(self, name: str = "", permits: int = 0, **options: object) -> Client:
        client = Client(self.subscription, name, **options)
        self.subscription.attach(client.consumer, self.kind)
        if permits:
            client.flow(permits)
        self.run()
        return client

    def sticky(self, *ranges: tuple[int, int], permits: int = 0) -> Client:
        return self.client(permits=permits, key_sharing=KeySharing([HashRange(*each) for each in ranges]))

    def fill(self, entries: int, messages: int = 1) -> None:
        for _ in range(entries):
            self.log.append(messages)
        self.run()

    def run(self) -> None:
        self.time.run()
