"""Dispatch rate limits: how fast a topic's subscriptions may deliver, together and each by itself.

A rate may be relative to the publish rate, so much more than comes in.  Then the limits are set again at
every look at the topic's own rate.
"""

from anabranch.base.clock import Clock
from anabranch.base.rate_limit import RateLimit
from anabranch.meta.rules import Rate, Rules


class DispatchLimits:
    __slots__ = ("_clock", "_published_per_s", "_rules", "_together")

    def __init__(self, rules: Rules, clock: Clock) -> None:
        self._clock = clock
        self.follow(rules, (0.0, 0.0))

    @property
    def is_relative(self) -> bool:
        rules = self._rules
        return (
            rules.dispatch_rate.is_relative_to_publish
            or rules.subscription_dispatch_rate.is_relative_to_publish
            or any(rate.is_relative_to_publish for rate in rules.subscription_rates.values())
        )

    def follow(self, rules: Rules, published_per_s: tuple[float, ...]) -> None:
        """`published_per_s` are messages and bytes."""
        self._rules = rules
        self._published_per_s = published_per_s
        self._together = self._limit(rules.dispatch_rate)

    def of_one(self, subscription: str) -> list[RateLimit]:
        """The limits of one subscription."""
        rules = self._rules
        own = self._limit(rules.subscription_rates.get(subscription, rules.subscription_dispatch_rate))
        return [limit for limit in (self._together, own) if limit is not None]

    def _limit(self, rate: Rate) -> RateLimit | None:
        if not rate.is_limited:
            return None
        messages, size_bytes = rate.messages or 0, rate.bytes or 0
        if rate.is_relative_to_publish:
            messages += int(self._published_per_s[0] * rate.period_s) if messages else 0
            size_bytes += int(self._published_per_s[1] * rate.period_s) if size_bytes else 0
        return RateLimit(self._clock, messages, size_bytes, rate.period_s)
