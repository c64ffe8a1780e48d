"""Traffic: what partitions count, what stays of it when they end, and which failures are worth a number."""

from pathlib import Path

import pytest

from anabranch.base.errors import (
    AnabranchError,
    Corrupt,
    DiskFull,
    NotEnoughReplicas,
    NotOwner,
    OffsetOutOfRange,
    TooLarge,
    UnknownTopic,
)
from anabranch.base.ids import TopicName
from anabranch.partition.traffic import Counts, Traffic
from tests.support.logs import records
from tests.support.serving import Served

ORDERS = TopicName.from_kafka("orders")


def test_what_a_leader_is_given_is_kept_when_it_is_gone(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.topic("orders", 1)
    leader = served.host.partition(ORDERS, 0)
    batch = memoryview(records("a", "b", "c"))
    leader.append(batch, 1)
    leader.append(memoryview(records("d")), 1)
    assert leader.counts.messages_in == 4
    assert leader.counts.bytes_in == leader.size_bytes > len(batch)
    size = leader.size_bytes
    served.host.remove_topic(ORDERS)
    past = served.host.traffic.past
    assert (past.messages_in, past.bytes_in) == (4, size)


def test_what_was_there_before_is_no_traffic(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.topic("orders", 1)
    served.host.partition(ORDERS, 0).append(memoryview(records("a")), 1)
    served.host.close()
    again = Served(tmp_path)
    again.topic("orders", 1)
    leader = again.host.partition(ORDERS, 0)
    assert (leader.log_end, leader.counts.messages_in, leader.counts.bytes_in) == (1, 0, 0)


def test_counts_add_up() -> None:
    total = Counts(1, 2, 3, 4, 5)
    total.add(Counts(10, 20, 30, 40, 50))
    assert [getattr(total, name) for name in Counts.__slots__] == [22, 33, 11, 44, 55]


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (NotOwner("elsewhere"), (0, 0)),
        (UnknownTopic("gone"), (0, 0)),
        (TooLarge("a batch"), (0, 1)),
        (Corrupt("a batch"), (0, 1)),
        (OffsetOutOfRange("behind"), (1, 0)),
        (NotEnoughReplicas("two of three"), (1, 1)),
        (DiskFull("no room"), (1, 1)),
        (OSError("no disk"), (1, 1)),
    ],
)
def test_failures_that_clients_cannot_deal_with_count(
    error: AnabranchError | OSError, counted: tuple[int, int]
) -> None:
    traffic = Traffic()
    traffic.produce_failed(error)
    traffic.fetch_failed(error)
    assert (traffic.failed_produces, traffic.failed_fetches) == counted
