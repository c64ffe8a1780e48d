"""/metrics of a broker in the tests' own loop: every name is in the documents, and labels are few."""

import re
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from anabranch.base.ids import TopicName
from anabranch.cluster.topics import NewTopic
from tests.support.http import Http, http_broker
from tests.support.logs import records
from tests.tidy.tree import ROOT

MAX_TOPICS = "anabranch.metrics.max.topics"


async def scrape(http: Http) -> dict[str, Metric]:
    answer = await http.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {family.name: family for family in text_string_to_metric_families(answer.body.decode())}


def series(found: dict[str, Metric]) -> int:
    return sum(len(family.samples) for family in found.values())


def topics_of(family: Metric) -> dict[str, float]:
    """By topic; the broker's own is under ""."""
    return {sample.labels.get("topic", ""): sample.value for sample in family.samples}


async def fill(http: Http, topics: int) -> None:
    """Topics of two partitions each, and one message more in each than in the one before."""
    parts = http.node.parts
    for number in range(topics):
        name = TopicName.from_kafka(f"filled-{number}")
        await parts.cluster.create_topic(NewTopic(name, 2, 1, (), {}))
        for _ in range(number + 1):
            parts.host.partition(name, 1).append(memoryview(records("x")), 1)


async def test_the_page_lists_what_is_there(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)(?:\{[\w,]*\})?` \| (\w+) \|", page, re.MULTILINE)
    async with http_broker(tmp_path) as http:
        found = await scrape(http)
    there = [(family.name + "_total" * (family.type == "counter"), family.type) for family in found.values()]
    assert sorted(listed) == sorted(there)


async def test_series_do_not_grow_with_topics(tmp_path: Path) -> None:
    async with http_broker(tmp_path) as http:
        await fill(http, 2)
        before = await scrape(http)
        await fill_more(http)
        after = await scrape(http)
    assert series(after) == series(before)
    assert {label for family in after.values() for sample in family.samples for label in sample.labels} == {
        *("broker", "cluster", "version"),
        *("le", "listener", "state"),
    }


async def fill_more(http: Http) -> None:
    name = TopicName.from_kafka("wide")
    await http.node.parts.cluster.create_topic(NewTopic(name, 300, 1, (), {}))
    for index in range(0, 300, 20):
        http.node.parts.host.partition(name, index).append(memoryview(records("x")), 1)


async def test_topics_are_told_of_up_to_a_bound(tmp_path: Path) -> None:
    async with http_broker(tmp_path, **{MAX_TOPICS: "2"}) as http:
        await fill(http, 4)
        found = topics_of((await scrape(http))["kafka_server_brokertopicmetrics_messagesin"])
    assert found == {"": 10, "filled-2": 3, "filled-3": 4}, "those with most of it, and the sum of all"


async def test_what_has_been_counted_stays_when_a_topic_goes(tmp_path: Path) -> None:
    async with http_broker(tmp_path) as http:
        await fill(http, 2)
        await http.node.parts.cluster.delete_topic(TopicName.from_kafka("filled-1"))
        found = await scrape(http)
    assert topics_of(found["kafka_server_brokertopicmetrics_messagesin"]) == {"": 3}
    assert topics_of(found["kafka_controller_kafkacontroller_globaltopiccount"]) == {"": 1}


async def test_it_is_there_without_a_port_for_pulsar(tmp_path: Path) -> None:
    async with http_broker(tmp_path, brokerServicePort="-1") as http:
        found = await scrape(http)
    listeners = {
        sample.labels["listener"]
        for sample in found["kafka_server_socket_server_metrics_connection_count"].samples
    }
    assert listeners == {"kafka"}
