"""The table of Kafka APIs: what is registered here is what ApiVersions advertises.

One file per API, named by it.  Importing the file registers it:

    @api(32, versions=(1, 4))
    async def describe_configs(request: Any, ctx: RequestContext) -> Answer: ...

`request` is what `wire.kafka.decoder` read: every field of the newest version is there (defaults
where the request's version has none), durations in milliseconds.  The answer is a nested dict with
the schema's field names, written at the request's version by `wire.kafka.encoder`; fields that a
version lacks are dropped.  `throttle_time` and `error_code` may be left out: zero.  A handler that
never waits is a plain function; one that does is a coroutine, and runs as a task.  It holds the connection
until it has returned or called `ctx.begun`, which says that it only waits from there on.

An error that has no place in the answer is raised, and closes the connection, as Kafka does.

Produce and Fetch are too hot for that: they register with `raw=True`, get the frame and the position
of the body, and give back chunks (in a tuple if they are memory, in a list if files are among them), None
when there is no answer, a `Waiting` that will have one, or a coroutine that gives back one of these and for
which the connection is held.
"""

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from anabranch.base.network import Chunk
from anabranch.server.peer import Peer
from anabranch.server.request_times import NOT_KEPT, RequestTimes
from anabranch.server.services import Services

Answer = dict[str, Any]
Reply = Sequence[Chunk] | None
Handler = Callable[..., Any]
Deferred = asyncio.Future[Reply]
Told = Callable[[Deferred], None]
Begun = Callable[[], None]


class Waiting(Protocol):
    """An answer that waits for something to happen."""

    answered: Deferred
    """Cancelled when the client is gone."""

    @property
    def kept_bytes(self) -> int:
        """What it has in memory while it waits, roughly, if that is worth counting."""

    def then(self, told: Told) -> None:
        """Call `told` once it is answered; at once rather than a turn of the loop later, if that can be."""

    def expire(self) -> None:
        """The node stops: answer with what there is, unless what is waited for is on its way."""


class ToldAtOnce:
    """Whoever waits for `answered` is told in the turn of the loop that fills it in."""

    __slots__ = ("_told", "answered", "kept_bytes")

    answered: Deferred

    def __init__(self, kept_bytes: int = 0) -> None:
        self._told: Told | None = None
        self.kept_bytes = kept_bytes

    def then(self, told: Told) -> None:
        self._told = told

    def _tell(self) -> None:
        """A callback of the future would come a turn of the loop later, after a look at all sockets."""
        if self._told is not None:
            self._told(self.answered)


def _nobody_is_behind() -> None:
    """Of a request that no connection is held for."""


class RequestContext:
    """What a handler knows about a request besides its fields.

    Requests with the same header share one, except those whose handlers are coroutines.
    """

    __slots__ = ("begun", "client_id", "connection_id", "peer", "services", "times", "version")

    def __init__(
        self,
        version: int,
        client_id: str | None,
        connection_id: int,
        services: Services,
        peer: Peer | None = None,
        begun: Begun = _nobody_is_behind,
        times: RequestTimes = NOT_KEPT,
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.connection_id = connection_id
        self.services = services
        self.peer = peer or Peer()
        self.begun = begun
        """To be called when nothing but waiting is left: the requests behind this one may begin."""
        self.times = times

    def of_one(self, begun: Begun) -> "RequestContext":
        """The same for one request, which tells `begun`."""
        return RequestContext(
            self.version, self.client_id, self.connection_id, self.services, self.peer, begun
        )

    @property
    def asked_by(self) -> str:
        """Who asks, for a line of the log."""
        return f"client {self.client_id!r} at {self.peer.address}:{self.peer.port}"


class Api(NamedTuple):
    key: int
    name: str
    min_version: int
    max_version: int
    advertised_min: int
    handler: Handler
    raw: bool
    waits: bool


_APIS: dict[int, Api] = {}


def api(
    key: int, versions: tuple[int, int], *, raw: bool = False, advertise_from: int | None = None
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of API `key` for `versions`, both inclusive."""

    def register(handler: Handler) -> Handler:
        assert key not in _APIS or _APIS[key].handler.__module__ == handler.__module__, key
        least, most = versions
        waits = inspect.iscoroutinefunction(handler)
        advertised = least if advertise_from is None else advertise_from
        _APIS[key] = Api(key, handler.__name__, least, most, advertised, handler, raw, waits)
        return handler

    return register


def load_apis() -> dict[int, Api]:
    """Every API of this package, by key."""
    package = importlib.import_module("anabranch.server.kafka")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"anabranch.server.kafka.{module.name}")
    return dict(sorted(_APIS.items()))
