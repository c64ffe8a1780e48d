"""Brokers: which there are, whether this one is healthy, and their configuration."""

from typing import Any

import msgspec

from anabranch import __version__
from anabranch.admin.call import Call, Text
from anabranch.admin.errors import Refused
from anabranch.admin.routes import API, delete, get, post
from anabranch.base.errors import NotFound, Unavailable
from anabranch.server.config import BROKER_OPTIONS


class Leader(msgspec.Struct, rename="camel"):
    broker_id: str
    service_url: str


class Ownership(msgspec.Struct):
    broker_assignment: str = "shared"
    is_controlled: bool = False
    is_active: bool = True


def _broker_id(call: Call) -> str:
    return call.services.web_url.removeprefix("http://")


@get(API + "/brokers", answer=list[str])
@get(API + "/brokers/{cluster}", answer=list[str])
async def active(call: Call) -> list[str]:
    """The brokers that are up."""
    if call.path.get("cluster", call.cluster_name) != call.cluster_name:
        raise NotFound("Cluster does not exist")
    return [_broker_id(call)]


@get(API + "/brokers/leaderBroker", answer=Leader)
async def leader(call: Call) -> Leader:
    """The broker that decides where topics are served."""
    return Leader(_broker_id(call), call.services.web_url)


@get(API + "/brokers/{cluster}/{broker}/ownedNamespaces", answer=dict[str, Ownership])
async def owned_namespaces(call: Call) -> dict[str, Ownership]:
    """The bundles that a broker serves."""
    if call.path["broker"] != _broker_id(call):
        raise NotFound(f"Broker id '{call.path['broker'][:200]}' not found in available brokers.")
    return {
        f"{name}/{first}_{end}": Ownership()
        for name, policies in sorted(call.image.namespaces.items())
        if policies.bundles is not None
        for first, end in zip(policies.bundles.boundaries, policies.bundles.boundaries[1:], strict=False)
    }


@get(API + "/brokers/health", answer=None)
async def health(call: Call) -> Text:
    """`ok` if the broker serves: it is registered, and its default namespace can be read."""
    image = call.image
    node = call.services.pulsar.config.current.node.node_id
    if node not in image.brokers or not image.namespaces:
        raise Unavailable("the broker is not registered in its cluster")
    call.services.partitions.log_dirs()  # the disk answers
    return Text("ok")


@get(API + "/brokers/ready", answer=None)
async def ready(call: Call) -> Text:
    """`ok` once requests are served."""
    return Text("ok")


@get(API + "/brokers/version", answer=None)
async def version(call: Call) -> Text:
    """The version of this broker."""
    return Text(__version__)


@get(API + "/brokers/internal-configuration", answer=dict[str, str])
async def internal_configuration(call: Call) -> dict[str, str]:
    """How this broker keeps its metadata."""
    return {"metadataStoreUrl": f"embedded:{call.services.partitions.data / 'metadata'}"}


@get(API + "/brokers/backlog-quota-check", answer=None)
async def check_backlogs(call: Call) -> None:
    """Hold the backlogs of open topics to their quotas now."""
    upkeep = call.services.pulsar.topics.upkeep
    await upkeep.round(upkeep.check_backlog)


# --- configuration


@get(API + "/brokers/configuration", answer=list[str])
async def dynamic_names(call: Call) -> list[str]:
    """The options that can be changed while brokers run."""
    return sorted(name for name, option in BROKER_OPTIONS.items() if option.dynamic)


@get(API + "/brokers/configuration/values", answer=dict[str, str])
async def dynamic_values(call: Call) -> dict[str, str]:
    """What was changed for all brokers while they run."""
    overrides = call.image.default_broker_config
    return {name: text for name, text in overrides.items() if _is_open(name)}


@get(API + "/brokers/configuration/runtime", answer=dict[str, str])
async def runtime(call: Call) -> dict[str, str]:
    """Every option as it holds in this broker now."""
    values = call.services.pulsar.config.current.layers.merged()
    shown: dict[str, Any] = {}
    for name, option in sorted(BROKER_OPTIONS.items()):
        if not option.sensitive and (not option.internal or name in values):
            shown[name] = values.get(name, option.dump(option.default))
    return shown


@post(API + "/brokers/configuration/{option}/{value}")
async def change(call: Call) -> None:
    """Change an option of all brokers."""
    name, text = call.path["option"], call.path["value"]
    _check_dynamic(name)
    BROKER_OPTIONS[name].parse(text)
    config = call.services.pulsar.config

    def changed(before: Any) -> dict[str, str]:
        after = {**before, name: text}
        config.check(after, for_all=True)
        return after

    await call.services.pulsar.cluster.alter_broker_config(None, changed)


@delete(API + "/brokers/configuration/{option}")
async def reset(call: Call) -> None:
    """Take back a change of an option."""
    name = call.path["option"]
    _check_dynamic(name)
    await call.services.pulsar.cluster.alter_broker_config(
        None, lambda before: {key: text for key, text in before.items() if key != name}
    )


def _check_dynamic(name: str) -> None:
    option = BROKER_OPTIONS.get(name)
    if option is None or not option.dynamic:
        raise Refused(412, f"Can't update non-dynamic configuration {name[:200]}")


def _is_open(name: str) -> bool:
    option = BROKER_OPTIONS.get(name)
    return option is not None and not option.sensitive
