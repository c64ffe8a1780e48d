"""The client on an event loop: many ask at once, nobody is left waiting, nothing is left open."""

import asyncio
from random import Random
from typing import Any

import pytest

from anabranch.base.clock import SystemClock
from anabranch.base.errors import Unavailable
from anabranch.client.aio import AsyncClient
from anabranch.client.destinations import ANY, GROUPS, Address, Broker, Coordinator, Leader, TopicPartition
from anabranch.client.requests import API_VERSIONS, LIST_GROUPS, METADATA, PRODUCE, Request
from anabranch.client.settings import Settings
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.fake_brokers import FakeBrokers, FakeNetwork

B1, B2 = Address("b1", 9092), Address("b2", 9092)
PLACE = TopicPartition("orders", 0)
LISTING = Request(LIST_GROUPS, {"states_filter": [], "types_filter": []})


def listed(error_code: int = 0) -> dict[str, Any]:
    return {"error_code": error_code, "groups": []}


@pytest.fixture
def brokers() -> FakeBrokers:
    made = FakeBrokers({1: B1, 2: B2})
    made.topics = {"orders": [(1, 3)]}
    made.coordinators = {"g": 2}
    made.answers[LIST_GROUPS] = lambda address, request: listed()
    return made


@pytest.fixture
def network(brokers: FakeBrokers) -> FakeNetwork:
    return brokers.network()


@pytest.fixture
def client(network: FakeNetwork) -> AsyncClient:
    return AsyncClient(Settings("b1:9092,b2:9092", timeout_s=2), network, SystemClock(), Random(1))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_many_at_once_share_connections_and_lookups(client: AsyncClient, brokers: FakeBrokers) -> None:
    asked = [client.send(to, LISTING) for _ in range(50) for to in (Leader(PLACE), Coordinator(GROUPS, "g"))]
    assert len(await asyncio.gather(*asked)) == 100
    assert sorted(brokers.opened) == [B1, B2]
    assert sorted(brokers.of(API_VERSIONS)) == ["b1", "b2"]
    assert len(brokers.of(METADATA)) == 1
    assert brokers.of(LIST_GROUPS).count("b1") == 50
    client.close()


async def test_waits_overlap_and_answers_keep_their_order(
    client: AsyncClient, brokers: FakeBrokers, network: FakeNetwork
) -> None:
    await client.send(B1, LISTING)
    numbers = iter(range(100))
    brokers.answers[LIST_GROUPS] = lambda address, request: listed(1000 + next(numbers))
    network.holds = True
    asked = [asyncio.ensure_future(client.send(B1, LISTING)) for _ in range(5)]
    await turns()
    assert len(brokers.of(LIST_GROUPS)) == 6  # all are on their way
    asked[1].cancel()  # whose answer is dropped
    await turns()
    network.release()
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    assert [one.error_code for i, one in enumerate(done) if i != 1] == [1000, 1002, 1003, 1004]  # type: ignore[union-attr]
    network.holds = False
    assert (await client.send(B1, LISTING)).error_code == 1005
    assert brokers.opened == [B1]
    client.close()


async def test_a_leader_that_moves(client: AsyncClient, brokers: FakeBrokers) -> None:
    def not_here(address: Address, request: Any) -> Any:
        brokers.topics["orders"] = [(2, 4)]
        return listed(0 if address == B2 else int(ErrorCode.not_leader_or_follower))

    brokers.answers[LIST_GROUPS] = not_here
    await asyncio.gather(*(client.send(Leader(PLACE), LISTING) for _ in range(10)))
    assert brokers.of(LIST_GROUPS) == ["b1"] * 10 + ["b2"] * 10
    assert client.routing.led(PLACE) == (2, 4)
    client.close()


async def test_a_connection_that_is_lost(
    client: AsyncClient, brokers: FakeBrokers, network: FakeNetwork
) -> None:
    await client.send(Leader(PLACE), LISTING)
    network.holds = True
    asked = [asyncio.ensure_future(client.send(Leader(PLACE), LISTING)) for _ in range(3)]
    await turns()
    network.holds = False
    brokers.topics["orders"] = [(2, 4)]
    brokers.away = {B1}
    network.links[0].abort()
    assert len(await asyncio.gather(*asked)) == 3
    assert brokers.of(LIST_GROUPS)[-3:] == ["b2"] * 3
    brokers.away = set()
    await client.send(Broker(1), LISTING)
    client.close()


async def test_an_answer_that_does_not_come(client: AsyncClient, network: FakeNetwork) -> None:
    await client.send(B1, LISTING)
    network.holds = True
    with pytest.raises(Unavailable, match="b1:9092 gave no answer within"):
        await client.ask(B1, LISTING, 0.05)
    assert network.links[0].is_over
    with pytest.raises(Unavailable, match="b2:9092 gave no answer within"):
        await client.ask(B2, LISTING, 0.05)
    assert all(link.is_over for link in network.links)
    network.holds = False
    await client.send(B1, LISTING)
    client.close()


async def test_nobody_there(client: AsyncClient, brokers: FakeBrokers) -> None:
    brokers.away = {B1, B2}
    for to in (ANY, Leader(PLACE), B1):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.send(to, LISTING, 0.1)
    client.close()


async def test_garbage(client: AsyncClient, brokers: FakeBrokers, network: FakeNetwork) -> None:
    brokers.spoil = lambda api_key, frame: b"\0\0\0\x63" + frame[4:] if api_key == LIST_GROUPS else frame
    with pytest.raises(Unavailable, match="gave no answer: b1:9092: the answer to request 99"):
        await client.send(B1, LISTING, 0.05)
    assert all(link.is_over for link in network.links)
    client.close()


async def test_who_opens_is_cancelled_and_another_goes_on(client: AsyncClient, brokers: FakeBrokers) -> None:
    first, second = (asyncio.ensure_future(client.send(B1, LISTING)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).error_code == 0
    client.close()


async def test_what_needs_no_answer(client: AsyncClient, brokers: FakeBrokers) -> None:
    brokers.answers[PRODUCE] = lambda address, request: {"responses": []}
    values = {"transactional_id": None, "acks": 0, "timeout": 1, "topic_data": []}
    assert await client.send(B1, Request(PRODUCE, values)) is None
    assert brokers.of(PRODUCE) == ["b1"]
    client.close()


async def test_requests_wait_while_much_has_not_left(
    client: AsyncClient, brokers: FakeBrokers, network: FakeNetwork
) -> None:
    await client.send(B1, LISTING)
    (link,) = network.links
    link.unsent = 9 << 20
    asked = asyncio.ensure_future(client.send(B1, LISTING))
    await turns()
    assert len(brokers.of(LIST_GROUPS)) == 1
    link.unsent = 0
    link.peer.drained()
    await asked
    link.unsent = 9 << 20
    with pytest.raises(Unavailable, match="does not take requests"):
        await client.ask(B1, LISTING, 0.02)
    client.close()


async def test_closing_ends_all_waits(client: AsyncClient, network: FakeNetwork) -> None:
    await client.send(B1, LISTING)
    network.holds = True
    asked = asyncio.ensure_future(client.ask(B1, LISTING, 5))
    await turns()
    client.close()
    with pytest.raises(Unavailable, match="the client is closed"):
        await asked
    with pytest.raises(Unavailable, match="the client is closed"):
        await client.ask(B1, LISTING, 5)
    assert all(link.is_over for link in network.links)
