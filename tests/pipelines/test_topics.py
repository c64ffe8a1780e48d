"""The topics of a pipeline, asked of a real broker."""

import pytest

from anabranch.base.errors import NotFound, Unavailable
from anabranch.pipelines.context import DEAD_LETTERS, SINK, SOURCE, TopicUse
from anabranch.pipelines.topics import behind_now, check_topics, create_sinks, reach
from tests.spark.conftest import Topics
from tests.support.broker import BrokerProcess


def test_what_is_not_there_is_named_with_what_it_is_for(broker: BrokerProcess) -> None:
    there = Topics(broker.bootstrap).create()
    uses = [TopicUse(there, SOURCE), TopicUse("nowhere", SOURCE), TopicUse("nor-here", DEAD_LETTERS)]
    with pytest.raises(NotFound, match="nowhere, which is read; nor-here, which gets dead letters"):
        check_topics(broker.bootstrap, uses)


def test_only_what_is_written_is_made(broker: BrokerProcess) -> None:
    uses = [TopicUse("no-source", SOURCE), TopicUse("a-sink", SINK), TopicUse("letters", DEAD_LETTERS)]
    assert create_sinks(broker.bootstrap, uses) == ["a-sink", "letters"]
    assert create_sinks(broker.bootstrap, uses) == []
    with pytest.raises(NotFound, match=r"not there: no-source, which is read$"):
        check_topics(broker.bootstrap, uses)


def test_a_topic_that_another_run_makes_meanwhile_is_there(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Topics(broker.bootstrap).create()
    monkeypatch.setattr("anabranch.pipelines.topics.missing", lambda bootstrap, uses: list(uses))
    create_sinks(broker.bootstrap, [TopicUse(there, SINK)])
    with pytest.raises(Unavailable, match=r"the topic no/topic cannot be made"):
        create_sinks(broker.bootstrap, [TopicUse("no/topic", SINK)])


def test_how_far_flows_are_behind(broker: BrokerProcess) -> None:
    topics = Topics(broker.bootstrap)
    name = topics.create(2)
    topics.fill(name, range(10), partitions=2)
    read_to = {"some": {name: {"0": 5, "1": 3}}, "none": {name: {}}, "gone": {"gone": {"0": 1}}}
    assert behind_now(broker.bootstrap, read_to) == {"some": 2, "none": 10, "gone": None}


def test_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.pipelines.topics._ANSWER_S", 0.2)
    with pytest.raises(Unavailable):
        reach("127.0.0.1:1")
