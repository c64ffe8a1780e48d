"""An answer that waits for news on a connection: it waits while nothing is behind it, and no longer."""

import asyncio

from anabranch.server.kafka.held import Held
from anabranch.server.kafka.registry import Answer, Api, RequestContext
from tests.unit.server.test_connection import ECHO, Client, request, turns

HEARTBEAT = 12


class Group:
    def __init__(self, client: Client) -> None:
        self.news: list[asyncio.Future[Answer]] = []
        client.home.apis[HEARTBEAT] = Api(HEARTBEAT, "heartbeat", 0, 4, 0, self.heartbeat, True, False)

    def heartbeat(self, frame: memoryview, at: int, ctx: RequestContext) -> Held:
        self.news.append(asyncio.get_running_loop().create_future())

        async def wait(news: "asyncio.Future[Answer]") -> Answer:
            return await news

        return Held(HEARTBEAT, ctx.version, wait(self.news[-1]), {"error_code": 0})


async def test_it_waits_for_news() -> None:
    client = Client()
    group = Group(client)
    client.send(request(HEARTBEAT, 1))
    await turns()
    assert client.answers() == []
    group.news[0].set_result({"error_code": 27})
    await turns()
    assert client.answers() == [(1, b"\0\x1b")]
    assert client.connection.is_idle


async def test_whatever_the_client_asks_next_sets_it_free() -> None:
    client = Client()
    group = Group(client)
    client.send(request(HEARTBEAT, 1))
    await turns()
    client.send(request(ECHO, 2, b"x"))
    await turns()
    assert client.answers() == [(1, b"\0\0"), (2, b"x")]
    assert group.news[0].cancelled(), "nobody waits for it any more"
    client.send(request(HEARTBEAT, 3) + request(HEARTBEAT, 4))
    await turns()
    assert client.order() == [3], "only the last one waits"


async def test_a_node_that_stops_and_a_client_that_goes() -> None:
    stopping, leaving = Client(), Client()
    groups = Group(stopping), Group(leaving)
    for client in (stopping, leaving):
        client.send(request(HEARTBEAT, 1))
    await turns()
    stopping.connection.quiesce()
    leaving.connection.closed()
    await turns()
    assert stopping.answers() == [(1, b"\0\0")]
    assert all(group.news[0].cancelled() for group in groups)
