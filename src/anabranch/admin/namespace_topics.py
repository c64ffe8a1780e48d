"""Topics of a namespace or bundle, all at once: list, unload, split, clear backlogs, unsubscribe."""

import msgspec

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.namespace_policies import BASE, alter
from anabranch.admin.routes import get, post, put
from anabranch.admin.topics import names_of
from anabranch.base.errors import NotFound
from anabranch.base.ids import TopicName
from anabranch.cluster.bundles import bundle_names, bundle_of, split
from anabranch.meta.policies import NamespacePolicies
from anabranch.topics.topic import Topic

_MODES = {"PERSISTENT": ("persistent",), "NON_PERSISTENT": ("non-persistent",)}
_ALL = ("persistent", "non-persistent")
_HALVES, _POSITIONS = "range_equally_divide", "specified_positions_divide"


@get(BASE + "/topics", answer=list[str], query=("mode", "includeSystemTopic"))
async def topics(call: Call) -> list[str]:
    """The topics of a namespace, stored and not as `mode` says (PERSISTENT, NON_PERSISTENT, ALL)."""
    domains = _MODES.get(call.query.get("mode", "PERSISTENT"), _ALL)
    call.services.pulsar.catalog.policies(call.namespace)
    return [
        name
        for topic in call.image.topics_in(call.namespace)
        if topic.name.domain in domains and (call.flag("includeSystemTopic") or not topic.is_internal)
        for name in names_of(topic)
    ]


def _names(call: Call, *, stored_only: bool = False) -> list[TopicName]:
    """What clients attach to in the namespace, or in the bundle of it that the path names."""
    bundles = call.policies.bundles
    wanted = call.path.get("bundle")
    if wanted is not None and (bundles is None or wanted not in bundle_names(bundles.boundaries)):
        raise NotFound(f"Bundle range {wanted[:100]} not found")
    return [
        TopicName.from_pulsar(name)
        for topic in call.image.topics_in(call.namespace)
        if not topic.is_internal and (topic.name.is_persistent or not stored_only)
        for name in names_of(topic)
        if wanted is None or bundles is None or bundle_of(bundles, TopicName.from_pulsar(name)) == wanted
    ]


@put(BASE + "/unload")
@put(BASE + "/{bundle}/unload")
async def unload(call: Call) -> None:
    """Close the topics of a namespace or bundle; their clients look them up again."""
    for name in _names(call):
        await call.services.pulsar.topics.unload(name)


@put(BASE + "/{bundle}/split", body=list[int] | None, query=("unload", "splitAlgorithmName"))
async def split_bundle(call: Call) -> None:
    """Cut a bundle in two, or at the places that the body gives (specified_positions_divide)."""
    algorithm = call.query.get("splitAlgorithmName") or _HALVES
    if algorithm not in (_HALVES, _POSITIONS):
        raise Refused(412, f"a bundle is split by {_HALVES} or {_POSITIONS}, not {algorithm[:100]}")
    positions = (call.body or []) if algorithm == _POSITIONS else []

    def changed(policies: NamespacePolicies) -> NamespacePolicies:
        bundles = policies.bundles
        if bundles is None:
            raise NotFound(f"Bundle range {call.path['bundle'][:100]} not found")
        return msgspec.structs.replace(policies, bundles=split(bundles, call.path["bundle"], positions))

    moved = _names(call) if call.flag("unload") else []
    await alter(call, changed)
    for name in moved:
        await call.services.pulsar.topics.unload(name)


@post(BASE + "/clearBacklog")
@post(BASE + "/clearBacklog/{subscription}")
@post(BASE + "/{bundle}/clearBacklog")
@post(BASE + "/{bundle}/clearBacklog/{subscription}")
async def clear_backlog(call: Call) -> None:
    """Skip everything that subscriptions, or the one of that name, have not read."""
    wanted = call.path.get("subscription")
    for name in _names(call, stored_only=True):
        topic = await call.services.pulsar.topics.open(name)
        assert isinstance(topic, Topic), "it is stored"
        for held in topic.subscriptions:
            if wanted is None or held.subscription.name == wanted:
                held.subscription.advance_to(topic.end)
                await topic.save(held.subscription)


@post(BASE + "/unsubscribe/{subscription}")
@post(BASE + "/{bundle}/unsubscribe/{subscription}")
async def unsubscribe(call: Call) -> None:
    """Delete the subscription of that name from every topic that has it."""
    wanted = call.path["subscription"]
    for name in _names(call, stored_only=True):
        topic = await call.services.pulsar.topics.open(name)
        assert isinstance(topic, Topic), "it is stored"
        found = topic.subscriptions.find(wanted)
        if found is None:
            continue
        if found.consumers:
            raise Refused(412, "Subscription has active connected consumers")
        await topic.unsubscribe(wanted)
