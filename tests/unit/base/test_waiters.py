"""Waiters: called until they leave, whatever they do while they are called."""

from anabranch.base.waiters import Waiters


def test_called_until_removed() -> None:
    waiters, calls = Waiters(), []

    def waiter() -> None:
        calls.append(1)

    waiters.wake()
    waiters.add(waiter)
    waiters.add(waiter)
    assert len(waiters) == 1
    waiters.wake()
    waiters.wake()
    waiters.remove(waiter)
    waiters.remove(waiter)
    waiters.wake()
    assert len(calls) == 2


def test_waiters_that_come_and_go_while_they_are_called() -> None:
    waiters, calls = Waiters(), []

    def late() -> None:
        calls.append("late")

    def leaves() -> None:
        calls.append("leaves")
        waiters.remove(leaves)
        waiters.add(late)

    waiters.add(leaves)
    waiters.wake()
    assert calls == ["leaves"]
    waiters.wake()
    assert calls == ["leaves", "late"]


def test_methods_of_one_object_are_one_waiter() -> None:
    class Reader:
        def wake(self) -> None: ...

    waiters, reader, other = Waiters(), Reader(), Reader()
    waiters.add(reader.wake)
    waiters.add(reader.wake)
    waiters.add(other.wake)
    assert len(waiters) == 2
    waiters.remove(reader.wake)
    assert len(waiters) == 1
