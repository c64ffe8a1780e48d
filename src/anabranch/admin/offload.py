"""Tiered storage: there is none.  Its policies read as not set, and setting them is refused."""

from typing import Any

from anabranch.admin.call import Call
from anabranch.admin.errors import Refused
from anabranch.admin.namespace_policies import BASE
from anabranch.admin.parts import whole_topic
from anabranch.admin.routes import get, route
from anabranch.admin.topics import TOPIC

_NEVER = -1


@get(BASE + "/offloadThreshold", answer=int)
@get(BASE + "/offloadThresholdInSeconds", answer=int)
async def threshold(call: Call) -> int:
    """How much or for how long a namespace's topics are kept here: always."""
    call.services.pulsar.catalog.policies(call.namespace)
    return _NEVER


@get(BASE + "/offloadPolicies", answer=None)
@get(BASE + "/offloadDeletionLagMs", answer=None)
async def of_namespace(call: Call) -> None:
    """What a namespace says about tiered storage: nothing."""
    call.services.pulsar.catalog.policies(call.namespace)


@get(TOPIC + "/offloadPolicies", answer=None, query=("applied",))
async def of_topic(call: Call) -> None:
    """What a topic says about tiered storage: nothing."""
    whole_topic(call)


@route("POST", BASE + "/offloadPolicies", body=Any)
@route("PUT", BASE + "/offloadThreshold", body=Any)
@route("PUT", BASE + "/offloadThresholdInSeconds", body=Any)
@route("PUT", BASE + "/offloadDeletionLagMs", body=Any)
@route("POST", TOPIC + "/offloadPolicies", body=Any)
@route("PUT", TOPIC + "/offload", body=Any)
async def refuse(call: Call) -> None:
    """Refused: there is no tiered storage."""
    raise Refused(405, "this broker has no tiered storage")
