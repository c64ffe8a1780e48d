"""The shop's morning: the same from the same seed, in order, with every kind of trouble in it."""

import json
from collections import Counter

from demo.shop import AFTER_ALL_MS, CLICKS, FLAWS, MORNING_MS, ON_TIME_MS, OPENING_MS, ORDERS, iso, morning

RECORDS = morning(20_000, seed=7)


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert morning(2_000, seed=3) == morning(2_000, seed=3)
    assert morning(2_000, seed=3) != morning(2_000, seed=4)


def test_about_as_many_as_asked_for_in_the_order_of_sending() -> None:
    assert abs(len(RECORDS) - 20_000) < 1_000
    sent = [record.sent_ms for record in RECORDS]
    assert sent == sorted(sent)
    assert min(record.at_ms for record in RECORDS) >= OPENING_MS
    *all_but_the_last, click, order = RECORDS
    assert max(record.at_ms for record in all_but_the_last) < OPENING_MS + MORNING_MS + 30 * 60_000
    assert click.at_ms == order.at_ms == all_but_the_last[-1].sent_ms + AFTER_ALL_MS


def test_every_kind_of_trouble_is_there() -> None:
    for topic in (CLICKS, ORDERS):
        of_topic = [record for record in RECORDS if record.topic == topic]
        flaws = Counter(record.flaw for record in of_topic)
        assert set(flaws) == {"", *FLAWS[topic]}
        late = sum(record.is_late for record in of_topic)
        assert 0.005 < late / len(of_topic) < 0.05


def test_a_sound_record_says_what_its_sender_knows() -> None:
    for record in RECORDS:
        if record.flaw:
            continue
        fields = json.loads(record.value)
        assert (fields["user"], fields["at"], fields["sent"]) == (
            record.key,
            iso(record.at_ms),
            iso(record.sent_ms),
        )
        if record.topic == ORDERS:
            assert round(fields["amount"] * 100) == record.amount_cents > 0
            assert fields["currency"] == record.currency


def test_nothing_is_nearly_late() -> None:
    """A watermark a little behind the rule must not decide otherwise than the rule."""
    delays_ms = [record.sent_ms - record.at_ms for record in RECORDS]
    assert not any(ON_TIME_MS - 60_000 < delay < ON_TIME_MS + 60_000 for delay in delays_ms)


def test_orders_have_numbers_of_their_own() -> None:
    orders = [json.loads(one.value)["order"] for one in RECORDS if one.topic == ORDERS and not one.flaw]
    assert len(set(orders)) == len(orders)
