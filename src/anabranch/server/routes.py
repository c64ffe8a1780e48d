"""Routes: where a request goes, worked out once for all requests with the same header.

    │ API │ version │ correlation id │ client's name │ tags │ body …
    └──── kind ─────┘                └──── name ─────┘ (tags included)

A client says the same in every header except for the correlation id.  So the last header of each kind is
remembered with what follows from it, and a request that has it again is not parsed up to its body.
"""

import struct
from typing import NamedTuple

from anabranch.base.errors import Corrupt
from anabranch.server.kafka.registry import Api, RequestContext
from anabranch.server.peer import Peer
from anabranch.server.services import Services
from anabranch.wire.kafka.decoder import Cursor, skip_tags
from anabranch.wire.kafka.schema import is_flexible

NAME_AT = 8
LEAST_HEADER_BYTES = 10
_MAX_ROUTES = 64
_MAX_NAME_BYTES = 256  # a longer one is read each time
_KIND = struct.Struct(">hh")
_NAME_SIZE = struct.Struct(">h")
_API_VERSIONS = 18


class Route(NamedTuple):
    api: Api
    name: bytes
    body_at: int
    context: RequestContext


class Routes:
    """The routes of one connection."""

    __slots__ = ("_apis", "_connection_id", "_peer", "_services", "known")

    def __init__(self, apis: dict[int, Api], services: Services, connection_id: int, peer: Peer) -> None:
        self._apis = apis
        self._services = services
        self._connection_id = connection_id
        self._peer = peer
        self.known: dict[int, Route] = {}  # by kind, as one number

    def forget(self) -> None:
        self.known.clear()

    def find(self, frame: memoryview, kind: int) -> Route | None:
        """The route of a request that has a whole header of `kind`.

        None if it is an ApiVersions request of a version that there is not.  Corrupt if it has no route.
        """
        key, version = _KIND.unpack_from(frame)
        api = self._apis.get(key)
        if api is None:
            raise Corrupt(f"API {key} is unknown")
        if not api.min_version <= version <= api.max_version:
            if key != _API_VERSIONS:
                raise Corrupt(f"{api.name} has no version {version}")
            return None
        at = LEAST_HEADER_BYTES
        (name_size,) = _NAME_SIZE.unpack_from(frame, NAME_AT)
        client_id = None
        if name_size >= 0:
            client_id = str(frame[at : at + name_size], "utf-8", "replace")
            at += name_size
        if is_flexible(key, version):
            cursor = Cursor(frame, at)
            skip_tags(cursor)
            at = cursor.at
        times = self._services.requests.of(api.name)
        context = RequestContext(
            version, client_id, self._connection_id, self._services, self._peer, times=times
        )
        route = Route(api, bytes(frame[NAME_AT:at]), at, context)
        if len(route.name) == at - NAME_AT <= _MAX_NAME_BYTES:
            if len(self.known) >= _MAX_ROUTES:
                self.known.clear()
            self.known[kind] = route
        return route
