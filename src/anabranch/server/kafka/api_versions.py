"""ApiVersions (18): what this broker speaks, from the table of what is registered.

A client asks before it knows anything, so a request of a version we lack is not refused: it is
answered at version 0 with UNSUPPORTED_VERSION and our range for this one API, and the client asks
again (KIP-511).  The header of the answer never has tagged fields, whatever the version.

v3 has the client's name and version, which must look like a Maven artifact's (Kafka's rule), and in
the answer features: which protocols hold in the cluster.  Ours are those of groups (KIP-848), of share groups
(KIP-932) and of transactions (KIP-890); most of Kafka's are about its own metadata log.  Clients take what is
not named for the older protocol.  What is supported from level 0 on is told from v4 on, since older clients
take that for an error.

The telemetry APIs are always served, but advertised only while an operator asks for metrics (Kafka:
while a plugin takes them).  A client that sees them asks every five minutes what nobody wants to know,
and librdkafka tells its user that it did.
"""

import re
from functools import cache
from typing import Any

from anabranch.server.kafka.registry import Answer, Api, RequestContext, api, load_apis
from anabranch.wire.kafka.encoder import encoder
from anabranch.wire.kafka.schema import ErrorCode

_KEY = 18
_TELEMETRY = (71, 72)
_FIRST_WITH_LEVEL_0 = 4
_FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 2}
_SUPPORTED = [
    {"name": name, "min_version": 0, "max_version": level} for name, level in sorted(_FEATURES.items())
]
_FINALIZED = [
    {"name": name, "min_version_level": level, "max_version_level": level}
    for name, level in sorted(_FEATURES.items())
]
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(_KEY, versions=(0, 4))
def api_versions(request: Any, ctx: RequestContext) -> Answer:
    if ctx.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": ErrorCode.invalid_request, "api_keys": []}
        ctx.peer.software_name, ctx.peer.software_version = name, version
    asks_for_metrics = bool(ctx.services.cluster.image.client_metrics)
    return {
        "api_keys": _advertised(asks_for_metrics),
        "supported_features": _SUPPORTED if ctx.version >= _FIRST_WITH_LEVEL_0 else [],
        "finalized_features": _FINALIZED,
        "finalized_features_epoch": 0,
    }


def unsupported_answer(apis: dict[int, Api]) -> bytes:
    """The body, at version 0, of the answer to an ApiVersions request of a version that we lack."""
    body = bytearray()
    answer = {"error_code": ErrorCode.unsupported_version, "api_keys": [_range_of(apis[_KEY])]}
    encoder(_KEY, 0)(body, answer)
    return bytes(body)


@cache
def _advertised(asks_for_metrics: bool) -> list[Answer]:
    return [_range_of(api) for key, api in load_apis().items() if asks_for_metrics or key not in _TELEMETRY]


def _range_of(api: Api) -> Answer:
    return {"api_key": api.key, "min_version": api.advertised_min, "max_version": api.max_version}
