"""The rules of the ISR against their definitions: random fetches, appends, checks and answers, from a seed.

The definition of "caught up" remembers everything: a follower was caught up as of a moment if it has since
asked for no less than the leader's end of that moment, that moment being one at which it asked.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.base.ids import BrokerId
from anabranch.partition.in_sync import InSync, Lag, ordered
from tests.support.images import partition_image
from tests.unit.records.strategies import seeded

ME, B2, B3 = BrokerId(1), BrokerId(2), BrokerId(3)
FOLLOWERS = (B2, B3)
LAG = Lag(10.0, 8)


class Naive:
    """One follower: every time it asked, what for, and where the leader's end was."""

    def __init__(self, in_sync: bool) -> None:
        self.asked: list[tuple[float, int, int]] = []
        self.since_s = 0.0 if in_sync else float("-inf")

    def caught_up_s(self) -> float:
        found = self.since_s
        for number, (now_s, end, leader_end) in enumerate(self.asked):
            if end >= leader_end:
                found = max(found, now_s)
            elif number and end >= self.asked[number - 1][2]:
                found = max(found, self.asked[number - 1][0])
        return found

    @property
    def end(self) -> int:
        return self.asked[-1][1] if self.asked else -1

    def is_late(self, leader_end: int, now_s: float, checked_end: int | None) -> bool:
        if self.end == leader_end:
            return False
        if now_s - self.caught_up_s() > LAG.time_s:
            return True
        return bool(self.asked) and checked_end is not None and checked_end - self.end > LAG.messages


STEPS = st.lists(
    st.tuples(st.just("append"), st.integers(1, 12))
    | st.tuples(st.just("pass"), st.integers(1, 6))
    | st.tuples(st.just("fetch"), st.sampled_from(FOLLOWERS), st.integers(0, 20))
    | st.tuples(st.just("check"))
    | st.tuples(st.just("answer"), st.sampled_from(("written", "refused"))),
    max_size=60,
)


@seeded(400)
@given(st.sampled_from([(1, 2, 3), (1, 2), (1,)]), STEPS)
def test_against_its_definition(isr: tuple[int, ...], steps: Sequence[Any]) -> None:
    state = partition_image(replicas=(1, 2, 3), in_sync=isr)
    ours = InSync(ME, state, 0, 0.0)
    model = {one: Naive(one in state.isr) for one in FOLLOWERS}
    now_s, leader_end, checked_end = 0.0, 0, None
    for kind, *what in steps:
        before = ours.asked_for
        if kind == "append":
            leader_end += what[0]
        elif kind == "pass":
            now_s += what[0]
        elif kind == "fetch":
            replica, short = what
            end = max(0, leader_end - short)
            ours.asked(replica, end, 0, leader_end, now_s)
            model[replica].asked.append((now_s, end, leader_end))
            keeps_up = ours.keeps_up(replica, leader_end, LAG, now_s)
            assert keeps_up == (not model[replica].is_late(leader_end, now_s, checked_end))
            if replica not in ours.isr and keeps_up:
                ours.join(replica)
                assert replica in ours.counted
                asks = before is None and end >= leader_end
                assert ours.ask_to_add(replica, leader_end) == asks
        elif kind == "check":
            late = {one for one in FOLLOWERS if model[one].is_late(leader_end, now_s, checked_end)}
            left = ours.check(leader_end, LAG, now_s, float("-inf"))
            leaving = late & ours.isr if before is None else set()
            assert {one.replica for one in left} == leaving
            checked_end = leader_end
        elif ours.asked_for is not None:
            if what[0] == "refused":
                ours.refused()
            else:
                written = replace(
                    ours.state,
                    isr=tuple(ordered(ours.asked_for, ours.state)),
                    partition_epoch=ours.state.partition_epoch + 1,
                )
                assert ours.changed(written, now_s)
        assert ME in ours.isr
        assert ours.asked_for is None or ME in ours.asked_for
        assert ours.counted >= ours.isr | (ours.asked_for or set())
        if before is not None and kind != "answer":
            assert ours.asked_for == before, "one request at a time"
