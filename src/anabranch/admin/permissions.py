"""Permissions: which roles may do what with namespaces, topics and subscriptions, kept and listed.

They are not enforced until brokers authenticate their clients.
"""

from typing import Any, Literal

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.namespace_policies import BASE, alter
from anabranch.admin.parts import whole_topic
from anabranch.admin.routes import delete, get, post
from anabranch.admin.topics import TOPIC
from anabranch.meta.policies import AuthPolicies

Action = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
Permissions = dict[str, list[str]]


async def _change(call: Call, **fields: Any) -> None:
    """Each of `fields` is a function of what the field was."""

    def changed(auth: AuthPolicies) -> AuthPolicies:
        return msgspec.structs.replace(
            auth, **{name: make(getattr(auth, name)) for name, make in fields.items()}
        )

    await alter(
        call,
        lambda policies: msgspec.structs.replace(policies, auth_policies=changed(policies.auth_policies)),
    )


def _without(permissions: Permissions, name: str) -> Permissions:
    return {other: actions for other, actions in permissions.items() if other != name}


# --- of namespaces


@get(BASE + "/permissions", answer=Permissions)
async def of_namespace(call: Call) -> Permissions:
    """What roles may do in a namespace."""
    return call.policies.auth_policies.namespace_auth


@post(BASE + "/permissions/{role}", body=list[Action])
async def grant(call: Call) -> None:
    """Say what a role may do in a namespace."""
    role, actions = call.path["role"], list(call.body)
    await _change(call, namespace_auth=lambda before: {**before, role: actions})


@delete(BASE + "/permissions/{role}")
async def revoke(call: Call) -> None:
    """A role may do nothing in a namespace any more."""
    role = call.path["role"]
    await _change(call, namespace_auth=lambda before: _without(before, role))


# --- of subscriptions


@get(BASE + "/permissions/subscription", answer=Permissions)
async def of_subscriptions(call: Call) -> Permissions:
    """The roles that may use subscriptions of a namespace, by subscription."""
    return call.policies.auth_policies.subscription_auth_roles


@post(BASE + "/permissions/subscription/{subscription}", body=list[str])
async def grant_subscription(call: Call) -> None:
    """Say which roles may use a subscription."""
    name, roles = call.path["subscription"], list(call.body)
    await _change(call, subscription_auth_roles=lambda before: {**before, name: roles})


@delete(BASE + "/permissions/{subscription}/{role}")
async def revoke_subscription(call: Call) -> None:
    """A role may use a subscription no more."""
    name, role = call.path["subscription"], call.path["role"]

    def without(before: Permissions) -> Permissions:
        roles = [other for other in before.get(name, []) if other != role]
        return {**before, name: roles} if roles else _without(before, name)

    await _change(call, subscription_auth_roles=without)


# --- of topics


@get(TOPIC + "/permissions", answer=Permissions)
async def of_topic(call: Call) -> Permissions:
    """What roles may do with a topic, by its namespace and by itself."""
    auth, topic = call.policies.auth_policies, whole_topic(call).name.pulsar
    found = {role: list(actions) for role, actions in auth.namespace_auth.items()}
    for role, actions in auth.destination_auth.get(topic, {}).items():
        found[role] = sorted({*found.get(role, []), *actions})
    return found


@post(TOPIC + "/permissions/{role}", body=list[Action])
async def grant_topic(call: Call) -> None:
    """Say what a role may do with a topic."""
    topic, role, actions = whole_topic(call).name.pulsar, call.path["role"], list(call.body)
    await _change(
        call, destination_auth=lambda before: {**before, topic: {**before.get(topic, {}), role: actions}}
    )


@delete(TOPIC + "/permissions/{role}")
async def revoke_topic(call: Call) -> None:
    """What a role may do with a topic is up to the namespace again."""
    topic, role = whole_topic(call).name.pulsar, call.path["role"]

    def without(before: dict[str, Permissions]) -> dict[str, Permissions]:
        left = _without(before.get(topic, {}), role)
        others = {name: told for name, told in before.items() if name != topic}
        return {**others, topic: left} if left else others

    await _change(call, destination_auth=without)
