"""The table of HTTP requests: what is answered, by whom, with what body.

    @get("/admin/v2/tenants/{tenant}", answer=TenantDocument)
    async def show(call: Call) -> TenantDocument:
        \"\"\"Who may administer a tenant, and where.\"\"\"

A handler is entered by its decorator; its path, body, answer and the first line of what it says about
itself are all there is to know, so the description for others (`openapi.py`) is made from the table and
cannot drift from what is there.  `{domain}` stands for `persistent` or `non-persistent`.

A body is decoded to the type that the route names before the handler sees it.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from anabranch.admin.call import Call

Handler = Callable[["Call"], Awaitable[Any]]

API = "/admin/v2"

_PARTS = (
    "lookup",
    "clusters",
    "brokers",
    "tenants",
    "namespaces",
    "namespace_policies",
    "namespace_properties",
    "namespace_topics",
    "topics",
    "topic_policies",
    "topic_stats",
    "compaction",
    "backlogs",
    "permissions",
    "subscription_rates",
    "offload",
    "surroundings",
    "broker_stats",
    "metrics",
    "subscriptions",
    "messages",
    "schemas",
    "transactions",
    "registry_subjects",
    "registry_schemas",
    "registry_settings",
)


class Manner(NamedTuple):
    """How requests of a kind are answered, where that is not Pulsar's way."""

    media: str
    refusal: Callable[[BaseException], tuple[int, object]]
    """The status and the JSON that tell of an error."""


class Route(NamedTuple):
    method: str
    path: str
    handler: Handler
    body: Any = None
    """The type of its JSON body; None if it has none."""
    answer: Any = None
    """The type of what it answers; None if that is nothing, or no JSON."""
    query: tuple[str, ...] = ()
    manner: Manner | None = None

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip().split("\n")[0]

    @property
    def part(self) -> str:
        return self.handler.__module__.rpartition(".")[2]


_table: list[Route] = []


def route(
    method: str,
    path: str,
    *,
    body: Any = None,
    answer: Any = None,
    query: tuple[str, ...] = (),
    manner: Manner | None = None,
) -> Callable[[Handler], Handler]:
    """Enter a handler into the table."""

    def enter(handler: Handler) -> Handler:
        _table.append(Route(method, path, handler, body, answer, query, manner))
        return handler

    return enter


def get(path: str, *, answer: Any = Any, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
    return route("GET", path, answer=answer, query=query)


def put(path: str, *, body: Any = None, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
    return route("PUT", path, body=body, query=query)


def post(
    path: str, *, body: Any = None, answer: Any = None, query: tuple[str, ...] = ()
) -> Callable[[Handler], Handler]:
    return route("POST", path, body=body, answer=answer, query=query)


def delete(path: str, *, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
    return route("DELETE", path, query=query)


def load_routes() -> list[Route]:
    """Every route there is, those with fewer blanks in their path before those with more."""
    for part in _PARTS:
        import_module(f"anabranch.admin.{part}")
    return sorted(_table, key=lambda route: route.path.count("{"))
