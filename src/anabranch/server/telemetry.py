"""Clients' own metrics, the broker's side of KIP-714: who is asked for what, and who may push when.

An operator makes subscriptions (`client-metrics` resources; `server/config_client_metrics.py`).  A
client asks what it should send, and sends it at an interval:

    get    ─> its instance id (ours to give the first time), metrics, interval, subscription id
    push   ─> with that subscription id; another one means that it must ask again

The subscription id is a CRC of what was asked for, so it changes when that does, on any broker.

    state of an instance        get                        push
    new                         accepted                   accepted if it has the right id
    asked                       Throttled                  accepted, once, at any time
    pushed                      Throttled for an interval  Throttled for an interval
    refused: wrong id, codec    accepted at once           Throttled for an interval
    said it is terminating      as before                  Invalid; its last push comes at any time

As in Kafka an instance belongs to the connection it was last seen on and to the subscriptions there
were: when either is another, it starts again.  There are at most `MAX_INSTANCES`; one not heard from
for three intervals is forgotten.

Nothing consumes the metrics yet.  A push is checked as far as that it can be unpacked within
`telemetry.max.bytes`, and counted.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from anabranch.base.clock import Clock
from anabranch.base.errors import (
    Corrupt,
    Invalid,
    InvalidRecord,
    TelemetryTooLarge,
    Throttled,
    TooLarge,
    UnknownSubscription,
    UnsupportedCompression,
)
from anabranch.base.ids import id_text
from anabranch.cluster.cluster import Cluster
from anabranch.cluster.identity import random_id
from anabranch.meta.image import Overrides
from anabranch.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from anabranch.server.config import DynamicConfig
from anabranch.server.config_client_metrics import ClientMetricsConfig
from anabranch.server.peer import Peer

_log = logging.getLogger(__name__)

MAX_INSTANCES = 16_384  # as many as Kafka keeps
CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""What a push may be compressed by, the best first."""

_ALL = "*"
_DEFAULT_INTERVAL_MS = 300_000
_LEAST_KEPT_S = 60.0
_NEVER = float("-inf")
_INLINE_BYTES = 64 * 1024  # beyond, a thread is cheaper than the stall
_RESERVED_IDS = 2  # 0 stands for none, 1 is Kafka's own


class Client(NamedTuple):
    """Who asks."""

    connection_id: int
    client_id: str | None
    peer: Peer

    def attributes(self, instance_id: UUID) -> dict[str, str | None]:
        """What subscriptions are matched by."""
        return {
            "client_instance_id": id_text(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.peer.software_name,
            "client_software_version": self.peer.software_version,
            "client_source_address": self.peer.address,
            "client_source_port": None if self.peer.port is None else str(self.peer.port),
        }


class Subscription(NamedTuple):
    """What one client is asked for."""

    id: int
    instance_id: UUID
    metrics: tuple[str, ...]
    interval_ms: int
    max_bytes: int


class Push(NamedTuple):
    instance_id: UUID | None
    subscription_id: int
    terminating: bool
    codec: int
    metrics: memoryview


class _Instance:
    """A client that asked or pushed.  Times are the clock's `monotonic`."""

    __slots__ = (
        "asked_at",
        "connection_id",
        "heard_at",
        "interests",
        "may_ask",
        "pushed_at",
        "subscription",
        "terminating",
    )

    def __init__(self, subscription: Subscription, connection_id: int, interests: object) -> None:
        self.subscription = subscription
        self.connection_id = connection_id
        self.interests = interests
        self.asked_at = _NEVER
        self.pushed_at = _NEVER
        self.heard_at = _NEVER
        self.may_ask = False  # whatever the time
        self.terminating = False

    @property
    def interval_s(self) -> float:
        return self.subscription.interval_ms / 1000

    @property
    def kept_until(self) -> float:
        return self.heard_at + max(_LEAST_KEPT_S, 3 * self.interval_s)


class Telemetry:
    def __init__(
        self, cluster: Cluster, config: DynamicConfig, clock: Clock, chance: Random, threads: Executor
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._chance = chance
        self._threads = threads
        self._instances: OrderedDict[UUID, _Instance] = OrderedDict()  # in order of use
        self._parsed: tuple[Mapping[str, Overrides], list[ClientMetricsConfig]] = ({}, [])
        self.pushes = 0
        self.pushed_bytes = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, instance_id: UUID | None, client: Client) -> Subscription:
        """What `client` is to send.  Throttled if it asks too often."""
        now = self._clock.monotonic()
        instance = self._find(instance_id or random_id(self._chance), client, now)
        if not instance.may_ask and now - max(instance.asked_at, instance.pushed_at) < instance.interval_s:
            raise Throttled("the subscription was asked for before the interval was over")
        instance.may_ask = False
        instance.asked_at = now
        return instance.subscription

    async def push(self, push: Push, client: Client) -> None:
        """Take metrics.  Raises what is wrong with them."""
        if push.instance_id is None or push.instance_id.int < _RESERVED_IDS:
            raise Invalid("a push needs the id of the client's instance")
        now = self._clock.monotonic()
        instance = self._find(push.instance_id, client, now)
        max_bytes = instance.subscription.max_bytes
        _check(push, instance, now, max_bytes)
        size = await self._unpacked_size(push, max_bytes)
        self.pushes += 1
        self.pushed_bytes += size

    async def _unpacked_size(self, push: Push, max_bytes: int) -> int:
        if not push.metrics:
            return 0
        work = partial(decompress, push.codec, push.metrics, max_bytes)
        try:
            if len(push.metrics) <= _INLINE_BYTES:
                return len(work())
            return len(await asyncio.get_running_loop().run_in_executor(self._threads, work))
        except TooLarge as error:
            raise TelemetryTooLarge(str(error)) from error
        except Corrupt as error:
            raise InvalidRecord(str(error)) from error

    def _find(self, instance_id: UUID, client: Client, now: float) -> _Instance:
        """The instance as the subscriptions of this moment have it."""
        self._forget_silent(now)
        interests = self._interests()
        instance = self._instances.pop(instance_id, None)
        if (
            instance is None
            or instance.connection_id != client.connection_id
            or instance.interests is not interests
        ):
            attributes = client.attributes(instance_id)
            max_bytes = self._config.current.telemetry.max_bytes
            subscription = subscription_of(instance_id, attributes, interests, max_bytes)
            instance = _Instance(subscription, client.connection_id, interests)
        instance.heard_at = now
        self._instances[instance_id] = instance
        return instance

    def _interests(self) -> list[ClientMetricsConfig]:
        """What operators want; another object whenever it has changed."""
        resources = self._cluster.image.client_metrics
        if self._parsed[0] != resources:
            self._parsed = (resources, list(_legal(resources)))
        return self._parsed[1]

    def _forget_silent(self, now: float) -> None:
        while self._instances:
            oldest_id, oldest = next(iter(self._instances.items()))
            if len(self._instances) < MAX_INSTANCES and oldest.kept_until > now:
                return
            del self._instances[oldest_id]


def subscription_of(
    instance_id: UUID,
    attributes: Mapping[str, str | None],
    interests: Iterable[ClientMetricsConfig],
    max_bytes: int,
) -> Subscription:
    """Every subscription that matches, taken together: all metrics, at the shortest interval."""
    matching = [interest for interest in interests if _matches(interest, attributes)]
    metrics = tuple(sorted({name for interest in matching for name in interest.metrics}))
    if _ALL in metrics:
        metrics = (_ALL,)
    interval_ms = min((interest.interval_ms for interest in matching), default=_DEFAULT_INTERVAL_MS)
    crc = crc32c(f"{','.join(metrics)} {interval_ms}".encode(), crc32c(instance_id.bytes))
    return Subscription(crc - (1 << 32) if crc >> 31 else crc, instance_id, metrics, interval_ms, max_bytes)


def _matches(interest: ClientMetricsConfig, attributes: Mapping[str, str | None]) -> bool:
    for name, pattern in interest.patterns().items():
        value = attributes[name]
        if value is None or not pattern.fullmatch(value):
            return False
    return True


def _legal(resources: Mapping[str, Overrides]) -> Iterable[ClientMetricsConfig]:
    for name, overrides in resources.items():
        try:
            yield ClientMetricsConfig.build(overrides)
        except Invalid as error:
            _log.error("client metrics %s: not legal, passed over: %s", name, error)


def _check(push: Push, instance: _Instance, now: float, max_bytes: int) -> None:
    """Kafka's checks in Kafka's order; the instance remembers what it is told."""
    if instance.terminating:
        raise Invalid("the client said that its last push was the last")
    instance.terminating = push.terminating
    due = instance.asked_at > instance.pushed_at or now - instance.pushed_at >= instance.interval_s
    if not due and not push.terminating:
        raise Throttled("metrics were pushed before the interval was over")
    instance.pushed_at = now
    if push.subscription_id != instance.subscription.id:
        instance.may_ask = True
        raise UnknownSubscription(f"{push.subscription_id} is not the subscription of this client")
    if push.codec not in (NONE, *CODECS):
        instance.may_ask = True
        raise UnsupportedCompression(f"there is no compression codec {push.codec}")
    if len(push.metrics) > max_bytes:
        raise TelemetryTooLarge(f"a push of {len(push.metrics)} bytes, the limit is {max_bytes}")
