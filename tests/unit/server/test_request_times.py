"""Request times: each request once, in the stages that it went through."""

import asyncio

from anabranch.base.metrics import Histogram
from anabranch.server.request_times import Requests, RequestTimes
from tests.unit.server.test_connection import (
    CREATE_NOTHING,
    ECHO,
    HEAVY,
    LATER,
    SILENT,
    SLOW,
    Client,
    request,
    turns,
)


def kept(stages: dict[str, Histogram]) -> dict[str, tuple[int, float]]:
    """Requests and milliseconds, by stage."""
    return {name: (stage.count, round(stage.total * 1000)) for name, stage in stages.items()}


def of(client: Client, name: str) -> dict[str, tuple[int, float]]:
    return kept(client.home.services.requests.by_name[name].stages())


def test_names_are_those_of_kafkas_metrics() -> None:
    requests = Requests()
    for api in ("produce", "fetch", "offset_commit", "init_producer_id"):
        requests.of(api)
    assert sorted(requests.by_name) == [
        "FetchConsumer",
        "FetchFollower",
        "InitProducerId",
        "OffsetCommit",
        "Produce",
    ]
    assert requests.of("produce") is requests.of("produce")


def test_all_stages_have_all_requests() -> None:
    times = RequestTimes()
    times.observe(1.0, 1.0, 1.002, 1.002, 1.002)  # by its handler
    times.observe(1.0, 1.5, 1.502, 1.502, 1.502)  # behind another
    times.observe(1.0, 1.0, 1.001, 1.101, 1.101)  # waited for a replica
    times.observe(1.0, 1.0, 1.001, 1.001, 2.001)  # waited for the answer before it
    assert times.requests == 4
    assert kept(times.stages()) == {
        "requestqueue": (4, 500),
        "local": (4, 6),
        "remote": (4, 100),
        "responsequeue": (4, 1000),
        "total": (4, 1606),
    }
    assert times.stages()["remote"].counts[0] == 3, "that waited for nothing"


def test_quick_requests_are_in_the_first_bucket() -> None:
    times = RequestTimes()
    times.observe(1.0, 1.0, 1.0, 2.0, 2.0)
    times.quick, times.quick_s, times.quick_queue_s = 10, 0.0005, 0.0002
    stages = times.stages()
    assert {stage.count for stage in stages.values()} == {times.requests} == {11}
    assert [stage.counts[0] for stage in stages.values()] == [11, 11, 10, 11, 10]
    assert [round(stage.total, 6) for stage in stages.values()] == [0.0002, 0.0003, 1, 0, 1.0005]


async def test_a_request_that_is_answered_at_once() -> None:
    client = Client()
    client.home.takes_ms = 3
    client.send(request(ECHO, 1) + request(ECHO, 2))
    assert of(client, f"Api {ECHO}") == {
        "requestqueue": (2, 3),
        "local": (2, 6),
        "remote": (2, 0),
        "responsequeue": (2, 0),
        "total": (2, 9),
    }
    client.home.takes_ms = 0
    client.send(request(ECHO, 4))
    assert of(client, f"Api {ECHO}")["total"] == (3, 9), "in no time"
    client.send(request(SILENT, 3))
    assert of(client, f"Api {SILENT}")["total"] == (1, 0), "it has no answer, and was done"


async def test_what_is_waited_for_and_the_answers_behind_it() -> None:
    client = Client()
    client.send(request(LATER, 1) + request(ECHO, 2))
    client.home.clock.advance(50)
    assert client.home.services.requests.by_name[f"Api {LATER}"].requests == 0
    client.home.waited[0].answered.set_result((b"a",))
    await turns()
    assert client.order() == [1, 2]
    assert of(client, f"Api {LATER}")["remote"] == (1, 50)
    assert of(client, f"Api {ECHO}")["responsequeue"] == (1, 50)
    assert of(client, f"Api {ECHO}")["total"] == (1, 50)


async def test_a_handler_that_holds_the_connection() -> None:
    client = Client()
    client.send(request(HEAVY, 1) + request(ECHO, 2))
    await turns()
    client.home.clock.advance(20)
    client.home.held[0].set_result((b"done",))
    await turns()
    assert client.order() == [1, 2]
    assert of(client, f"Api {HEAVY}")["local"] == (1, 20)
    assert of(client, f"Api {ECHO}")["requestqueue"] == (1, 20)
    client.send(request(SLOW, 3, CREATE_NOTHING, 2))
    await turns()
    client.home.clock.advance(7)
    client.home.held[1].set_result([])
    await turns()
    assert of(client, "CreateTopics")["total"] == (1, 7)


async def test_what_a_client_that_left_did_not_get_is_not_counted() -> None:
    client = Client()
    client.send(request(LATER, 1))
    client.connection.closed()
    await asyncio.sleep(0)
    assert client.home.services.requests.by_name[f"Api {LATER}"].requests == 0
