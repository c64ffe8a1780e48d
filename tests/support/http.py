"""A broker's HTTP in the tests' own loop: requests over a plain connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.node import Node, this_machine
from anabranch.server.config_file import load


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        return str(self.json["reason"])


class Http:
    """A broker, and requests to it; `admin` is below /admin/v2."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.address = node.addresses["http"]

    async def ask(self, method: str, path: str, body: object = None, raw: bytes | None = None) -> Answer:
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: {self.address}\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            text = await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()
        first, _, rest = text.partition(b"\r\n")
        lines, _, payload = rest.partition(b"\r\n\r\n")
        headers = dict(line.decode("latin-1").split(": ", 1) for line in lines.split(b"\r\n") if line)
        return Answer(int(first.split()[1]), {k.lower(): v for k, v in headers.items()}, payload)

    async def get(self, path: str) -> Any:
        """What a GET of something that is there answers."""
        answer = await self.ask("GET", "/admin/v2" + path)
        assert answer.status == 200, answer
        return answer.json

    async def admin(self, method: str, path: str, body: object = None) -> Answer:
        return await self.ask(method, "/admin/v2" + path, body)

    async def done(self, method: str, path: str, body: object = None) -> None:
        """A change that works."""
        answer = await self.admin(method, path, body)
        assert answer.status == 204, answer


@asynccontextmanager
async def http_broker(data: Path, **options: str) -> AsyncIterator[Http]:
    ports = {"listeners": "PLAINTEXT://127.0.0.1:0", "brokerServicePort": "0", "webServicePort": "0"}
    node = Node(load(None, {}, {"log.dirs": str(data), **ports, **options}), this_machine())
    await node.start()
    try:
        yield Http(node)
    finally:
        await node.stop()
