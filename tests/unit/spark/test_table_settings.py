from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.base.errors import Invalid
from anabranch.client.cluster import Cluster
from anabranch.client.requests import Request
from anabranch.spark.table_settings import TableSettings, enabled_tables
from anabranch.wire.kafka.schema import ErrorCode


class Answers:
    """A cluster that tells the options of its topics, or an error."""

    def __init__(self, **topics: dict[str, str] | ErrorCode) -> None:
        self._topics = topics

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: f"id of {topic}" for topic in topics}

    def send(self, to: object, request: Request) -> Any:
        asked = request.values["resources"]
        return SimpleNamespace(results=[self._result(one["resource_name"]) for one in asked])

    def _result(self, topic: str) -> Any:
        told = self._topics.get(topic, ErrorCode.unknown_topic_or_partition)
        if isinstance(told, ErrorCode):
            return SimpleNamespace(resource_name=topic, error_code=int(told), configs=[])
        options = [
            SimpleNamespace(name=f"anabranch.table.{name}", value=value) for name, value in told.items()
        ]
        return SimpleNamespace(resource_name=topic, error_code=0, configs=options)


def asked(answers: Answers, *topics: str, must_know: bool = True) -> list[TableSettings]:
    return enabled_tables(cast("Cluster", answers), topics, must_know=must_know)


def test_topics_say_whether_they_are_tables() -> None:
    answers = Answers(
        orders={"enable": "true", "location": "/tables/orders", "retention.ms": "5"},
        clicks={"enable": "false", "location": "/tables/clicks"},
        plain={},
    )
    found = asked(answers, "orders", "clicks", "plain", "gone")
    assert found == [TableSettings("orders", "id of orders", Path("/tables/orders"), 5, 3_600_000)]


def test_who_may_not_know_does_not_leave_history_out() -> None:
    answers = Answers(
        orders=ErrorCode.topic_authorization_failed, clicks={"enable": "true", "location": "/c"}
    )
    with pytest.raises(Invalid, match=r"'orders'.*useTable"):
        asked(answers, "orders", "clicks")
    assert [one.topic for one in asked(answers, "orders", "clicks", must_know=False)] == ["clicks"]
