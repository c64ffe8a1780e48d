"""The shop's own books, on mornings small enough to check by hand."""

from demo.ledger import GAP_MS, PATIENCE_MS, Ledger, Minute, Session, Takings
from demo.shop import CLICKS, ON_TIME_MS, ORDERS, Sent

NOON_MS = 1_772_452_800_000


def click(user: str, at_ms: int, late_ms: int = 0, flaw: str = "") -> Sent:
    return Sent(CLICKS, user, b"", NOON_MS + at_ms, NOON_MS + at_ms + late_ms, flaw=flaw)


def order(cents: int, at_ms: int, late_ms: int = 0, currency: str = "EUR") -> Sent:
    return Sent(ORDERS, "u", b"", NOON_MS + at_ms, NOON_MS + at_ms + late_ms, "", cents, currency)


def test_every_record_is_in_one_of_three_heaps() -> None:
    records = [click("a", 0), click("a", 1, ON_TIME_MS + 1), click("a", 2, ON_TIME_MS + 1, "torn")]
    ledger = Ledger([*records, order(5, 0)])
    assert ledger.sent == {CLICKS: 3, ORDERS: 1}
    assert (ledger.on_time, ledger.late, ledger.flawed) == (
        [records[0], order(5, 0)],
        [records[1]],
        [records[2]],
    )


def test_takings_by_minute_and_currency() -> None:
    orders = [order(5, 0), order(7, 59_999), order(11, 59_000, currency="USD"), order(13, 60_000)]
    last = order(100, PATIENCE_MS + 120_000)
    assert Ledger([*orders, order(99, 10, ON_TIME_MS + 1), last]).revenue == {
        Minute(NOON_MS, "EUR"): Takings(2, 12),
        Minute(NOON_MS, "USD"): Takings(1, 11),
        Minute(NOON_MS + 60_000, "EUR"): Takings(1, 13),
    }


def test_a_gap_parts_sessions_of_one_user_and_nobody_elses() -> None:
    first_ms, second_ms, after_ms = 0, GAP_MS - 1, 2 * GAP_MS
    clicks = [click("a", after_ms), click("a", first_ms), click("b", GAP_MS), click("a", second_ms)]
    last = click("c", 3 * GAP_MS + PATIENCE_MS)
    assert Ledger([*clicks, last]).sessions == {
        Session("a", NOON_MS, NOON_MS + second_ms + GAP_MS, 2): 1,
        Session("a", NOON_MS + after_ms, NOON_MS + after_ms + GAP_MS, 1): 1,
        Session("b", NOON_MS + GAP_MS, NOON_MS + 2 * GAP_MS, 1): 1,
    }


def test_what_may_still_change_does_not_count() -> None:
    first, last_ms = click("a", 0), GAP_MS + PATIENCE_MS
    assert Ledger([first, click("b", last_ms - 1)]).sessions == {}
    assert sum(Ledger([first, click("b", last_ms)]).sessions.values()) == 1
    assert Ledger([order(1, 0), order(1, PATIENCE_MS + 59_999)]).revenue == {}
    assert len(Ledger([order(1, 0), order(1, PATIENCE_MS + 60_000)]).revenue) == 1
