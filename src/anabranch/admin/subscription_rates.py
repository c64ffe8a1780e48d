"""Subscription dispatch rates: one subscription's own, over its topic's subscriptionDispatchRate."""

from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.routes import delete, get, route
from anabranch.admin.topic_policies import alter, dispatch_rate_of, own_policies, rules_of_topic
from anabranch.admin.topics import TOPIC
from anabranch.meta.policies import DispatchRate, SubscriptionPolicies

_RATE = TOPIC + "/{subscription}/dispatchRate"
_Rates = dict[str, SubscriptionPolicies]


@get(_RATE, answer=DispatchRate, query=("applied",))
async def show(call: Call) -> Any:
    """How fast a subscription may deliver."""
    name = call.path["subscription"]
    if call.flag("applied"):
        rules = rules_of_topic(call)
        return dispatch_rate_of(rules.subscription_rates.get(name, rules.subscription_dispatch_rate))
    told = own_policies(call).subscription_policies.get(name)
    return None if told is None else told.dispatch_rate


@route("POST", _RATE, body=DispatchRate | None)
async def change(call: Call) -> None:
    """Say how fast a subscription may deliver."""
    name, rate = call.path["subscription"], call.body
    if rate is None:
        raise Refused(400, "the body must say a dispatch rate")
    await _alter(call, lambda before: {**before, name: SubscriptionPolicies(rate)})


@delete(_RATE)
async def remove(call: Call) -> None:
    """Let a subscription go by its topic's rate again."""
    name = call.path["subscription"]
    await _alter(call, lambda before: {other: told for other, told in before.items() if other != name})


async def _alter(call: Call, change: Callable[[_Rates], _Rates]) -> None:
    await alter(
        call,
        lambda policies: msgspec.structs.replace(
            policies, subscription_policies=change(policies.subscription_policies)
        ),
    )
