"""Routes: the header of a request is read once, and again whenever it says something else."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.base.errors import Corrupt
from anabranch.server.kafka.registry import load_apis
from anabranch.server.peer import Peer
from anabranch.server.request_times import Requests
from anabranch.server.routes import LEAST_HEADER_BYTES, NAME_AT, Routes

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
SERVICES: Any = SimpleNamespace(requests=Requests())


def request(key: int, version: int, name: bytes | None, tags: bytes = b"\0", body: bytes = b"body") -> bytes:
    size = -1 if name is None else len(name)
    return struct.pack(">hhih", key, version, 7, size) + (name or b"") + tags + body


def kind(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big", signed=True)


@pytest.fixture
def routes() -> Routes:
    return Routes(load_apis(), SERVICES, 5, Peer())


def find(routes: Routes, frame: bytes) -> Any:
    return routes.find(memoryview(frame), kind(frame))


def test_a_route_knows_where_the_body_is_and_who_asks(routes: Routes) -> None:
    frame = request(PRODUCE, 9, b"me")
    route = find(routes, frame)
    assert frame[route.body_at :] == b"body"
    assert (route.context.version, route.context.client_id, route.context.connection_id) == (9, "me", 5)
    assert frame[NAME_AT : route.body_at] == route.name
    assert routes.known[kind(frame)] is route


@pytest.mark.parametrize(
    ("version", "tags"),
    [(3, b""), (9, b"\0"), (9, b"\1\0\2xx")],
)
def test_headers_of_all_kinds(routes: Routes, version: int, tags: bytes) -> None:
    for name in (None, b"", b"me", "mü".encode()):
        frame = request(PRODUCE, version, name, tags)
        route = find(routes, frame)
        assert frame[route.body_at :] == b"body"
        assert route.context.client_id == (None if name is None else name.decode())


def test_another_name_is_another_route(routes: Routes) -> None:
    first = find(routes, request(PRODUCE, 9, b"me"))
    frame = request(PRODUCE, 9, b"it")
    assert frame[NAME_AT : first.body_at] != first.name
    assert find(routes, frame).context.client_id == "it"
    assert routes.known[kind(frame)].context.client_id == "it"


def test_what_has_no_route(routes: Routes) -> None:
    assert find(routes, request(API_VERSIONS, 99, b"me")) is None
    with pytest.raises(Corrupt):
        find(routes, request(PRODUCE, 99, b"me"))
    with pytest.raises(Corrupt):
        find(routes, request(99, 0, b"me"))
    with pytest.raises(Corrupt):
        find(routes, request(PRODUCE, 9, b"me", tags=b"\xff\xff", body=b""))
    assert not routes.known


def test_what_is_remembered_is_bounded(routes: Routes) -> None:
    find(routes, request(PRODUCE, 9, b"x" * 1000))
    cut = request(PRODUCE, 3, b"x" * 50)[: LEAST_HEADER_BYTES + 20]
    find(routes, cut)
    assert not routes.known
    for key, api in load_apis().items():
        for version in range(api.min_version, api.max_version + 1):
            find(routes, request(key, version, b"me"))
            assert 0 < len(routes.known) <= 64
    routes.forget()
    assert not routes.known
