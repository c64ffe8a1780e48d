"""Members of a Kafka group go on where Pulsar consumers stopped: what was acknowledged ahead is left out."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from anabranch.records.batch import split_batches
from anabranch.records.record import iter_records, payload_of
from anabranch.server.kafka.fetch import Fetch
from anabranch.server.peer import Peer
from anabranch.subscriptions.cursor import Cursor
from anabranch.topics.publish import Send
from tests.support.entries import PUBLISHED_MS, batch_of
from tests.support.logs import records
from tests.support.serving import FETCH, Answered, Served, read_answer

CLIENT = "test"  # as `Served` calls itself


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """Three batches of four records: offsets 0 to 11."""
    made = Served(tmp_path)
    made.topic("t")
    for _ in range(3):
        assert made.produce("t", records("a", "b", "c", "d")).error_code == 0
    return made


def acked(mark: int, *offsets: int) -> Cursor:
    cursor = Cursor(mark)
    for offset in offsets:
        cursor.ack(offset, offset + 1)
    return cursor


def asks(served: Served, cursor: Cursor, peer: Peer | None = None, group: str = "g") -> None:
    """A client is told where the group stands."""
    served.ahead[group, "t", 0] = cursor
    served.services.handovers.asked(peer or served.peer, CLIENT, group, ("t", 0), cursor.mark_delete)


async def fetched(served: Served, offset: int) -> tuple[list[int], int]:
    """The offsets of the records that an answer has from `offset` on, and where it ends."""
    reply = served.fetch_raw([("t", 0, offset)])
    if isinstance(reply, Fetch):
        reply = await asyncio.wait_for(reply.answered, 60)
    part = Answered(served, read_answer(FETCH, 16, reply)).parts["t", 0]
    found, end = [], offset
    for header, batch in split_batches(part.records or b""):
        payload = payload_of(header, batch, 1 << 20)
        found += [record.offset for record in iter_records(header, payload) if record.offset >= offset]
        end = header.last_offset + 1
    return found, end


async def all_from(served: Served, offset: int) -> list[int]:
    found: list[int] = []
    while offset < served.partition("t").log_end:
        more, end = await fetched(served, offset)
        assert end > offset, "the reader is stuck"
        found, offset = found + more, end
    return found


async def test_what_is_acknowledged_ahead_is_left_out(served: Served) -> None:
    asks(served, acked(1, 3, 4, 5, 6, 7, 10))
    assert await all_from(served, 1) == [1, 2, 8, 9, 11]
    assert served.services.handovers.are_none is False
    served.produce("t", records("e"))
    assert await fetched(served, 12) == ([12], 13)
    assert served.services.handovers.are_none


async def test_a_reader_gets_past_an_end_that_is_acknowledged(served: Served) -> None:
    asks(served, acked(7, *range(8, 12)))
    assert await fetched(served, 7) == ([7], 8)
    assert await fetched(served, 8) == ([], 12)
    served.produce("t", records("e"))
    assert await fetched(served, 12) == ([12], 13)


async def test_large_batches_are_made_anew_beside_the_loop(served: Served) -> None:
    served.produce("t", records(*["x" * 100] * 1000, codec=4))
    asks(served, acked(12, *range(13, 1000, 2)))
    assert await all_from(served, 12) == [*range(12, 1000, 2), *range(1000, 1012)]


async def test_entries_of_pulsar_producers(served: Served) -> None:
    entry = memoryview(batch_of(b"a", b"b", b"c"))
    served.partition("t").append_entries([Send(0, 2, 3, PUBLISHED_MS, entry)])
    asks(served, acked(10, 11, 13))
    assert await all_from(served, 10) == [10, 12, 14]


async def test_who_does_not_begin_there_gets_everything(served: Served) -> None:
    asks(served, acked(1, 3))
    assert (await fetched(served, 0))[0] == list(range(12))
    assert (await fetched(served, 2))[0] == list(range(2, 12))
    assert (await fetched(served, 1))[0] == [1, 2]  # the group's reader, at last


async def test_who_seeks_back_gets_everything(served: Served) -> None:
    asks(served, acked(1, 3, 9))
    assert (await fetched(served, 1))[0] == [1, 2]
    assert (await fetched(served, 4))[0] == [4, 5, 6, 7]
    assert (await fetched(served, 0))[0] == list(range(12))
    assert (await fetched(served, 1))[0] == list(range(1, 12))


async def test_another_connection_goes_on_once_the_first_is_gone(served: Served) -> None:
    asks(served, acked(1, 3, 9))
    first, served.peer = served.peer, Peer()
    asks(served, acked(1, 3, 9), first)
    assert (await fetched(served, 1))[0] == [1, 2]  # it asked on a connection of its own
    second, served.peer = served.peer, Peer()
    assert (await fetched(served, 4))[0] == list(range(4, 12))  # somebody else of that name
    second.is_gone = True
    assert (await fetched(served, 4))[0] == [4, 5, 6, 7]
    served.peer.is_gone = True
    served.peer = Peer()
    served.ahead.clear()  # the group has no members any more
    assert (await fetched(served, 8))[0] == [8, 9, 10, 11]


async def test_groups_whose_members_look_alike(served: Served) -> None:
    asks(served, acked(1, 3), group="g")
    asks(served, acked(2, 5), group="h")
    asks(served, acked(4), group="plain")
    assert (await fetched(served, 1))[0] == [1, 2]
    first, served.peer = served.peer, Peer()
    assert (await fetched(served, 2))[0] == [2, 3]
    first, served.peer = served.peer, first
    assert (await fetched(served, 3))[0] == list(range(4, 12))  # g has nothing more ahead
    served.peer = first
    assert (await fetched(served, 4))[0] == [4, 6, 7]


@pytest.mark.parametrize("others", [(1, 5), (1,)])
async def test_when_two_may_be_meant_neither_is(served: Served, others: tuple[int, ...]) -> None:
    asks(served, acked(1, 3), group="g")
    asks(served, acked(*others), group="h")
    assert (await fetched(served, 1))[0] == list(range(1, 12))
    assert (await fetched(served, 1))[0] == list(range(1, 12))


@pytest.mark.parametrize("position", [1, -1])
async def test_who_asked_before_may_be_meant(served: Served, position: int) -> None:
    served.services.handovers.asked(served.peer, CLIENT, "h", ("t", 0), position)
    asks(served, acked(1, 3), group="g")
    assert (await fetched(served, 1))[0] == list(range(1, 12))


async def test_who_asked_before_and_stands_elsewhere_is_not_meant(served: Served) -> None:
    served.services.handovers.asked(served.peer, CLIENT, "h", ("t", 0), 2)
    asks(served, acked(1, 3), group="g")
    assert (await fetched(served, 1))[0] == [1, 2]
    served.clock.ms += 11_000
    served.services.handovers.asked(served.peer, CLIENT, "h", ("t", 0), -1)
    served.clock.ms += 11_000
    asks(served, acked(1, 3), group="g")
    assert (await fetched(served, 1))[0] == [1, 2]


async def test_a_group_that_begins_somewhere_may_be_meant(served: Served) -> None:
    asks(served, acked(1, 3), group="g")
    served.services.handovers.asked(served.peer, CLIENT, "new", ("t", 0), -1)
    assert (await fetched(served, 1))[0] == list(range(1, 12))
    served.clock.ms += 11_000
    asks(served, acked(1, 3), group="g")
    served.services.handovers.asked(served.peer, "other", "new", ("t", 0), -1)
    assert (await fetched(served, 1))[0] == [1, 2]


async def test_an_old_question_means_nothing(served: Served) -> None:
    asks(served, acked(1, 3))
    served.clock.ms += 11_000
    assert (await fetched(served, 1))[0] == list(range(1, 12))


async def test_other_clients_get_everything(served: Served) -> None:
    asks(served, acked(1, 3))
    served.peer.address = "127.0.0.2"
    assert (await fetched(served, 1))[0] == list(range(1, 12))


async def test_names_that_clients_make_up_are_not_kept_for_long(served: Served) -> None:
    tracemalloc.start()
    try:
        for number in range(2_000):
            group = f"{number}" + "g" * 16_000
            served.services.handovers.asked(served.peer, CLIENT, group, ("t", number), 1)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 16 << 20, "of 32 MB"
    asks(served, acked(1, 3))
    assert await all_from(served, 1) == [1, 2, *range(4, 12)]
