"""Where a subscription goes on that is told to skip so many messages."""

import pytest

from anabranch.admin.subscriptions import after_unacked
from anabranch.subscriptions.kinds import SubscriptionKind
from tests.support.subscriptions import Bench


@pytest.mark.parametrize(
    ("count", "expected"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 9), (7, 10), (99, 10)]
)
def test_what_is_acknowledged_further_on_is_not_counted(count: int, expected: int) -> None:
    bench = Bench(SubscriptionKind.SHARED)
    bench.fill(10)
    bench.cursor.ack(5, 8)
    assert after_unacked(bench.subscription, count, 10) == expected
