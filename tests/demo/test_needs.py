"""What the demo lacks is said in words, all of it at once."""

import importlib.util

import pytest

from anabranch.base import java
from anabranch.base.errors import Invalid
from demo import needs


def test_nothing_is_missing_where_the_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "free_memory_mb", lambda: None)
    assert needs.missing(brokers=3) == []


def test_everything_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise Invalid("Spark needs Java 17 or newer")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(java, "find_java", no_java)
    monkeypatch.setattr(needs, "free_memory_mb", lambda: 1023.9)
    assert needs.missing(brokers=1) == [
        "packages are missing: pip install 'anabranch[pulsar]'",
        "packages are missing: pip install 'anabranch[spark]'",
        "Spark needs Java 17 or newer",
        "1,024 MB of memory are free; Spark and the broker want 1,500",
    ]


def test_a_cluster_wants_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "kazoo" else name)
    monkeypatch.setattr(java, "find_java", lambda: None)
    monkeypatch.setattr(needs, "free_memory_mb", lambda: 1600.0)
    assert needs.missing(brokers=1) == []
    assert needs.missing(brokers=3) == [
        "packages are missing: pip install 'anabranch[cluster]'",
        "1,600 MB of memory are free; Spark and 3 brokers want 1,900",
    ]
