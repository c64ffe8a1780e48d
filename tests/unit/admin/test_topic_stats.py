"""Several partitions' numbers as one topic's."""

from anabranch.admin.topic_stats import together


def test_numbers_are_added_and_times_are_the_latest() -> None:
    one = {"msgInCounter": 3, "msgRateIn": 1.5, "lastPublishTimeStamp": 10, "backlogQuotaLimitSize": -1}
    two = {"msgInCounter": 4, "msgRateIn": 0.5, "lastPublishTimeStamp": 7, "backlogQuotaLimitSize": -1}
    assert together([one, two]) == {
        "msgInCounter": 7,
        "msgRateIn": 2.0,
        "lastPublishTimeStamp": 10,
        "backlogQuotaLimitSize": -1,
    }


def test_subscriptions_of_a_name_are_one() -> None:
    one = {"subscriptions": {"s": {"msgBacklog": 1, "consumers": ["a"], "type": None, "blocked": False}}}
    two = {"subscriptions": {"s": {"msgBacklog": 2, "consumers": ["b"], "type": "Shared", "blocked": True}}}
    three = {"subscriptions": {"t": {"msgBacklog": 5, "consumers": [], "type": "Shared", "blocked": False}}}
    assert together([one, two, three])["subscriptions"] == {
        "s": {"msgBacklog": 3, "consumers": ["a", "b"], "type": "Shared", "blocked": True},
        "t": {"msgBacklog": 5, "consumers": [], "type": "Shared", "blocked": False},
    }


def test_nothing_is_nothing() -> None:
    assert together([]) == {}
    assert together([{"properties": {"a": "b"}}, {"properties": {"c": "d"}}]) == {
        "properties": {"a": "b", "c": "d"}
    }
