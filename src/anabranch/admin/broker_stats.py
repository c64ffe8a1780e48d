"""Broker statistics: how all of its open topics are doing, by namespace and bundle."""

from typing import Any

from anabranch.admin.call import Call
from anabranch.admin.routes import API, get
from anabranch.admin.topic_stats import as_json
from anabranch.base.ids import TopicName
from anabranch.cluster.bundles import bundle_of
from anabranch.topics.topic_stats import stats_of


@get(API + "/broker-stats/topics", answer=dict[str, Any])
async def topics(call: Call) -> dict[str, Any]:
    """How the topics that somebody uses are doing, by namespace, bundle, and whether they are stored."""
    found: dict[str, Any] = {}
    now_ms = call.services.pulsar.clock.now_ms()
    for topic in call.services.pulsar.topics:
        namespace = topic.name.in_namespace
        policies = call.image.namespaces.get(namespace)
        if policies is None or policies.bundles is None:
            continue
        name = TopicName.from_pulsar(topic.full_name)
        by_bundle = found.setdefault(str(namespace), {})
        by_domain = by_bundle.setdefault(bundle_of(policies.bundles, name), {})
        by_domain.setdefault(name.domain, {})[topic.full_name] = as_json(stats_of(topic, now_ms))
    return found
