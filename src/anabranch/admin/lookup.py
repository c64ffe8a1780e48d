"""Look-up: which broker serves a topic."""

import msgspec

from anabranch.admin.call import Call, Text
from anabranch.admin.routes import get
from anabranch.cluster.bundles import bundle_of
from anabranch.server.pulsar.owners import find_owner, url_of
from anabranch.server.pulsar.topic_access import catch_up, check_listener, check_namespace

_TOPIC = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"


class LookupData(msgspec.Struct, rename="camel"):
    broker_url: str
    http_url: str
    native_url: str
    broker_url_tls: str = ""
    http_url_tls: str = ""
    broker_url_ssl: str = ""


@get(_TOPIC, answer=LookupData, query=("listenerName",))
async def lookup(call: Call) -> LookupData:
    """Where a topic is served."""
    check_namespace(call.services.pulsar, call.topic_name)
    check_listener(call.query.get("listenerName", ""))
    await catch_up(call.services.pulsar, call.topic_name)
    owner = await find_owner(call.services.pulsar, call.topic_name)
    if owner is None:
        url, web_url = call.services.pulsar.service_url, call.services.web_url
    else:
        url, web_url = url_of(owner), "" if owner.http is None else f"http://{owner.http}"
    return LookupData(url, web_url, url)


@get(_TOPIC + "/bundle", answer=None)
async def bundle(call: Call) -> Text | None:
    """The bundle that a topic is in."""
    bundles = call.policies.bundles
    return None if bundles is None else Text(bundle_of(bundles, call.topic_name))
