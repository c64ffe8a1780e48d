import threading
import time

from anabranch.base.errors import Unavailable
from anabranch.cli.log_ends import LogEnds, at_once
from anabranch.client.destinations import TopicPartition

PARTITION = TopicPartition("orders", 0)


def test_how_far_each_replica_is_behind() -> None:
    ends = LogEnds(ends={1: {PARTITION: 10}, 2: {PARTITION: 7}, 3: {PARTITION: 12}, 4: {}})
    assert [ends.lag(PARTITION, 1, replica) for replica in (1, 2, 3, 4, 5)] == [0, 3, 0, None, None]
    assert ends.lag(PARTITION, 5, 1) is None, "the leader did not say"
    assert ends.lag(PARTITION, -1, 1) is None, "nobody leads"


def test_who_hangs_holds_nobody_up() -> None:
    hangs = threading.Event()

    def away() -> str:
        raise Unavailable("nobody is there")

    began = time.monotonic()
    try:
        assert at_once({1: lambda: "one", 2: lambda: str(hangs.wait()), 3: away}, 0.5) == {1: "one"}
    finally:
        hangs.set()
    assert 0.5 <= time.monotonic() - began < 30


def test_nobody_to_ask() -> None:
    assert at_once({}, 60) == {}
