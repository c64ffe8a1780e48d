"""The HTTP port itself: what is loaded when, hostile requests, and that its description is whole."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.admin.routes import load_routes
from tests.support.http import Http, http_broker


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    async with http_broker(tmp_path) as broker:
        yield broker


def test_a_broker_that_nobody_asks_has_no_web_framework() -> None:
    program = (
        "import sys, anabranch.node; print([m for m in ('starlette', 'uvicorn', 'h11') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


async def test_the_description_has_every_route(http: Http) -> None:
    description = (await http.ask("GET", "/openapi.json")).json
    assert description["openapi"].startswith("3.")
    for route in load_routes():
        operation = description["paths"][route.path][route.method.lower()]
        assert operation["summary"], route
        assert ("requestBody" in operation) == (route.body is not None)
    names = [
        operation["operationId"] for path in description["paths"].values() for operation in path.values()
    ]
    assert len(set(names)) == len(names)


def test_no_request_has_two_answers() -> None:
    routes = [(route.method, route.path) for route in load_routes()]
    assert len(set(routes)) == len(routes)


@pytest.mark.parametrize(
    ("method", "path", "raw", "status"),
    [
        ("GET", "/", b"", 404),
        ("GET", "/admin/v2/nothing", b"", 404),
        ("GET", "/admin/v2/tenants/", b"", 200),
        ("PATCH", "/admin/v2/tenants", b"", 405),
        ("PUT", "/admin/v2/tenants/t", b"{", 400),
        ("PUT", "/admin/v2/tenants/t", b"\xff", 400),
        ("PUT", "/admin/v2/tenants/t", b"[" * 100_000, 400),
        ("PUT", "/admin/v2/tenants/t", b'{"adminRoles":"' + b"x" * (1 << 20) + b'"}', 413),
        ("PUT", "/admin/v2/tenants/%2e%2e", b'{"allowedClusters":["standalone"]}', 412),
        ("GET", "/admin/v2/persistent/..%2f..%2f/default", b"", 412),
        ("GET", "/admin/v2/persistent/public/default/t/messageid/99999999999999999999999", b"", 404),
    ],
    ids=range(11),
)
async def test_hostile_requests(http: Http, method: str, path: str, raw: bytes, status: int) -> None:
    assert (await http.ask(method, path, raw=raw)).status == status
    assert await http.get("/clusters") == ["standalone"]


@pytest.mark.parametrize("text", [b"\0\0\0\1", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"x" * 200_000])
async def test_what_is_no_http(http: Http, text: bytes) -> None:
    host, _, port = http.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text)
    writer.write_eof()
    try:
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        answer = b""
    assert answer == b"" or b" 40" in answer.split(b"\r\n")[0]
    writer.close()
    assert await http.get("/clusters") == ["standalone"]


async def test_one_connection_for_many_requests(http: Http) -> None:
    host, _, port = http.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(3):
        writer.write(b"GET /admin/v2/brokers/health HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        assert b"200" in head.split(b"\r\n")[0]
        assert await reader.readexactly(2) == b"ok"
    writer.close()


async def test_too_many_connections_are_refused(http: Http) -> None:
    host, _, port = http.address.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(257)]
    ended = await asyncio.wait_for(opened[-1][0].read(), 60)
    assert ended == b""
    for _, writer in opened:
        writer.close()
    for _ in range(6000):
        if not http.node._http.transports:  # type: ignore[union-attr]
            break
        await asyncio.sleep(0.01)
    assert await http.get("/clusters") == ["standalone"]


async def test_a_stop_does_not_wait_for_idle_connections(tmp_path: Path) -> None:
    async with http_broker(tmp_path) as http:
        host, _, port = http.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /admin/v2/brokers/health HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"ok")
        idle = await asyncio.open_connection(host, int(port))
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    idle[1].close()
