"""What is due when."""

import random

from anabranch.partition.due import DueTimes


def test_the_picture_of_the_module() -> None:
    due: DueTimes[str] = DueTimes()
    due.at("log", 5000)
    due.at("log", 9000)
    assert (due.pop(6000), due.next_ms, "log" in due, len(due)) == ([], 9000, True, 1)
    assert (due.pop(9000), due.next_ms, "log" in due, len(due)) == (["log"], None, False, 0)


def test_as_a_dictionary_would() -> None:
    chance = random.Random(4)
    due, model, now = DueTimes[object](), dict[object, int](), 0
    things = [object() for _ in range(20)]
    for _ in range(5000):
        thing = chance.choice(things)
        what = chance.random()
        if what < 0.6:
            model[thing] = now + chance.randrange(100)
            due.at(thing, model[thing])
        elif what < 0.7:
            model.pop(thing, None)
            due.cancel(thing)
        else:
            now += chance.randrange(10)
            expected = sorted(at for at in model.values() if at <= now)
            popped = due.pop(now)
            assert [model.pop(each) for each in popped] == expected
        assert len(due) == len(model)
        assert due.next_ms == min(model.values(), default=None)


def test_what_is_put_off_again_and_again_takes_no_room() -> None:
    due: DueTimes[int] = DueTimes()
    for time in range(10_000):
        due.at(time % 10, time)
        assert due.next_ms is not None
    assert len(due._heap) < 200
