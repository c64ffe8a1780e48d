"""A fetcher and what its leader may answer: what is asked next, what is put off, and what it tells."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.clock import SystemClock
from anabranch.base.disk import DirectDisk
from anabranch.base.errors import DiskFull, Unavailable
from anabranch.base.ids import BrokerId, TopicName
from anabranch.client.destinations import Address
from anabranch.client.requests import API_VERSIONS, FETCH, LIST_OFFSETS
from anabranch.log.config import LogConfig
from anabranch.log.local_log import LocalLog
from anabranch.log.paths import GAPS
from anabranch.log.segment import Segment
from anabranch.meta.image import TopicImage
from anabranch.partition.config import ReplicationConfig
from anabranch.partition.fetcher import Followers, Surroundings
from anabranch.partition.following import Following
from anabranch.partition.replica import Replica
from anabranch.records.batch import place
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.fake_brokers import FakeBrokers
from tests.support.hosts import a_host
from tests.support.images import led_by, partition_image, topic_image
from tests.support.logs import contents, fill, put, records
from tests.support.waiting import until

ID = UUID(int=7)
ORDERS = TopicName.from_kafka("orders")


def followed(epoch: int = 5, leader: int = 2) -> TopicImage:
    """Two partitions that broker 1, which is us, has replicas of."""
    image = topic_image(ORDERS, ID, 2)
    for index in range(2):
        image = led_by(image, index, partition_image(index, leader=leader, epoch=epoch, replicas=(2, 1, 3)))
    return image


class Fetching:
    """A host that follows broker 2, which answers as it is told, and then not at all."""

    def __init__(self, data: Path, *, backoff_ms: int = 60_000, **log: Any) -> None:
        self.brokers = FakeBrokers({2: Address("b2", 9092), 3: Address("b3", 9092)})
        greeting = self.brokers.answers[API_VERSIONS]
        self.brokers.answers |= {
            API_VERSIONS: lambda address, request: self._at_once(greeting(address, request)),
            FETCH: self._fetch,
            LIST_OFFSETS: self._list,
        }
        self.network = self.brokers.network()
        self.host = a_host(data, SystemClock())
        self.host.recover()
        self.answers: deque[dict[int, dict[str, Any]]] = deque()
        """By partition, of each fetch."""
        self.asked: list[dict[int, Any]] = []
        self.holds = False
        """The answers to fetches are on their way until the network releases them."""
        self.bounds = (0, 0)
        self._running: asyncio.Task[None] | None = None
        self.cut: list[tuple[Replica, list[Segment]]] = []
        self.cut_error: OSError | None = None
        """Why it cannot be written down that a log was cut."""
        config = replace(ReplicationConfig(), fetch_backoff_ms=backoff_ms)  # nothing comes again meanwhile
        disk, clock, at = DirectDisk(), SystemClock(), self.brokers.brokers.get
        self.followers = Followers(
            Surroundings(
                BrokerId(1),
                self.host,
                disk,
                self.network,
                clock,
                Random(1),
                config,
                at,
                lambda: 7,
                self._truncated,
            )
        )
        self.host.on_state = self.followers.follow
        self.host.add_topic(followed(), LogConfig(**log))

    async def _truncated(self, following: Following, segments: list[Segment]) -> None:
        if self.cut_error is not None:
            raise self.cut_error
        following.replica.is_cut = False
        self.cut.append((following.replica, segments))

    def _fetch(self, address: Address, request: Any) -> dict[str, Any]:
        (topic,) = request.topics
        assert topic.topic_id == ID
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 7)
        self.asked.append({part.partition: part for part in topic.partitions})
        told = self.answers.popleft() if self.answers else {}
        self.network.holds = self.holds or not (self.answers or told)
        parts = [self._part(index, **told[index]) for index in told if index in self.asked[-1]]
        topics = [{"topic_id": ID, "partitions": parts}] if parts else []
        return {"error_code": 0, "session_id": 0, "responses": topics}

    def _at_once(self, answer: Any) -> Any:
        self.network.holds = False
        return answer

    def _part(self, index: int, **fields: Any) -> dict[str, Any]:
        return {
            "partition_index": index,
            "error_code": 0,
            "high_watermark": 0,
            "last_stable_offset": 0,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": None,
        } | fields

    def _list(self, address: Address, request: Any) -> dict[str, Any]:
        (part,) = request.topics[0].partitions
        assert part.current_leader_epoch == 5
        found = {
            "partition_index": part.partition_index,
            "error_code": 0,
            "timestamp": -1,
            "offset": self.bounds[0 if part.timestamp == -2 else 1],
            "leader_epoch": 5,
        }
        return self._at_once({"topics": [{"name": "orders", "partitions": [found]}]})

    def replica(self, index: int = 0) -> Replica:
        topic = self.host.topic_by_id(ID)
        assert topic is not None
        return self.host.replica_of(topic, index)

    async def fetches(self, count: int) -> None:
        """So many, from when this is first called."""
        if self._running is None:
            self._running = asyncio.create_task(self.followers.run())
        await until(lambda: len(self.asked) >= count)

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)


def batch(offset: int, *values: str, epoch: int = 5) -> bytes:
    made = records(*values)
    place(made, offset, epoch)
    return bytes(made)


@pytest.fixture
async def fetching(tmp_path: Path) -> AsyncIterator[Fetching]:
    made = Fetching(tmp_path, flush_messages=1)
    yield made
    await made.stop()


async def test_what_is_fetched_is_flushed_before_the_leader_hears_of_it(fetching: Fetching) -> None:
    flushed: list[int] = []
    part = {"records": batch(0, "a", "b"), "high_watermark": 1}
    fetching.answers += [{0: part}, {0: {"high_watermark": 2}}]

    def recorded(address: Address, request: Any) -> dict[str, Any]:
        flushed.append(fetching.replica().log.recovery_point)
        return fetching._fetch(address, request)

    fetching.brokers.answers[FETCH] = recorded
    await fetching.fetches(3)
    assert [asked[0].fetch_offset for asked in fetching.asked] == [0, 2, 2]
    assert [asked[0].current_leader_epoch for asked in fetching.asked] == [5, 5, 5]
    assert flushed == [0, 2, 2]
    assert fetching.replica().high_watermark == 2


async def test_what_was_recovered_is_flushed_before_the_leader_hears_of_it(fetching: Fetching) -> None:
    """An earlier process had written it, and was killed before it was on the disk."""
    put(fetching.replica().log, records("a", "b"), 5)
    assert fetching.replica().log.recovery_point == 0
    points: list[int] = []

    def recorded(address: Address, request: Any) -> dict[str, Any]:
        points.append(fetching.replica().log.recovery_point)
        return fetching._fetch(address, request)

    fetching.brokers.answers[FETCH] = recorded
    await fetching.fetches(1)
    assert fetching.asked[0][0].fetch_offset == 2
    assert points == [2]


@pytest.mark.parametrize("is_recovered", [True, False])
async def test_what_cannot_be_flushed_is_not_told_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recovered: bool
) -> None:
    fetching = Fetching(tmp_path, backoff_ms=1, flush_messages=1)
    log, refused = fetching.replica().log, [True]
    flush = fetching.host.flusher.flush

    async def refusing(opened: LocalLog, up_to: int) -> None:
        if opened is log and refused:
            raise Unavailable("no descriptor is left")
        await flush(opened, up_to)

    monkeypatch.setattr(fetching.host.flusher, "flush", refusing)
    if is_recovered:
        put(log, records("a"), 5)
    else:
        fetching.answers += [{0: {"records": batch(0, "a")}}]
    fetching.answers += [{1: {"records": batch(n, f"{n}")}} for n in range(5)]
    fetching.answers += [{}]
    await fetching.fetches(6)
    assert fetching.replica(1).log.log_end >= 4
    assert log.log_end == 1
    told = [asked[0].fetch_offset for asked in fetching.asked if 0 in asked]
    assert told == [0] * (not is_recovered)
    refused.clear()

    def is_told() -> bool:
        fetching.network.release()
        return any(0 in asked and asked[0].fetch_offset == 1 for asked in fetching.asked)

    await until(is_told)
    assert log.recovery_point == 1
    await fetching.stop()


async def test_what_cannot_be_flushed_is_not_tried_again_with_each_fetch_of_others(
    fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, tried = fetching.replica().log, 0
    flush = fetching.host.flusher.flush

    async def refusing(opened: LocalLog, up_to: int) -> None:
        nonlocal tried
        if opened is log:
            tried += 1
            raise Unavailable("no descriptor is left")
        await flush(opened, up_to)

    monkeypatch.setattr(fetching.host.flusher, "flush", refusing)
    fetching.answers += [{0: {"records": batch(0, "a")}}]
    fetching.answers += [{1: {"records": batch(n, f"{n}")}} for n in range(5)]
    await fetching.fetches(6)
    assert tried == 1


async def test_a_replica_that_parted_is_cut_and_that_is_written_down(fetching: Fetching) -> None:
    for epoch in (3, 4):
        put(fetching.replica().log, records(f"of {epoch}"), epoch)
    parted = {"diverging_epoch": {"epoch": 3, "end_offset": 1}, "high_watermark": 1}
    fetching.answers += [{0: parted}, {0: {"records": batch(1, "new"), "high_watermark": 2}}]
    await fetching.fetches(3)
    assert [(asked[0].fetch_offset, asked[0].last_fetched_epoch) for asked in fetching.asked] == [
        (2, 4),
        (1, 3),
        (2, 5),
    ]
    assert contents(fetching.replica().log) == [(0, b"of 3"), (1, b"new")]
    assert [(replica.log.log_end, len(segments)) for replica, segments in fetching.cut] == [(2, 0)]


async def test_what_the_leader_has_deleted_is_looked_at_here(fetching: Fetching) -> None:
    replica = fetching.replica()
    put(replica.log, records("a", "b"), 5)
    fetching.answers += [{0: {"high_watermark": 2}}, {}]
    await fetching.fetches(2)
    assert replica in fetching.host.touched
    fetching.host.touched.clear()
    fetching.answers += [{0: {"high_watermark": 2, "log_start_offset": 1}}, {}]
    fetching.network.release()
    await fetching.fetches(4)
    assert replica.log.log_start == 1
    assert replica in fetching.host.touched


PARTED = {"diverging_epoch": {"epoch": 3, "end_offset": 1}, "high_watermark": 1}


async def test_a_cut_that_the_disk_refused_is_done_before_the_leader_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the log says, its file may end before: a leader that is told so counts on what is gone."""
    fetching = Fetching(tmp_path, backoff_ms=1)
    for epoch in (3, 4):
        put(fetching.replica().log, records(f"of {epoch}"), epoch)
    seal, refusals = Segment.seal, [DiskFull("no room"), DiskFull("none yet")]

    def refused(segment: Segment) -> None:
        if refusals:
            raise refusals.pop()
        seal(segment)

    monkeypatch.setattr(Segment, "seal", refused)
    log = fetching.replica().log
    fetching.answers += [{0: PARTED}, *[{0: {"records": batch(1, "new"), "high_watermark": 2}}] * 2000]
    await fetching.fetches(1)
    await until(lambda: contents(log) == [(0, b"of 3"), (1, b"new")])
    assert [asked[0].fetch_offset for asked in fetching.asked if 0 in asked][:2] == [2, 1]
    assert (refusals, len(fetching.cut)) == ([], 1)
    await fetching.stop()


async def test_nothing_is_appended_before_a_cut_is_written_down(tmp_path: Path) -> None:
    fetching = Fetching(tmp_path, backoff_ms=1)
    replica = fetching.replica()
    for epoch in (3, 4):
        put(replica.log, records(f"of {epoch}"), epoch)
    fetching.cut_error = OSError("no room")
    fetching.answers += [{0: PARTED}, *[{0: {"records": batch(1, "new"), "high_watermark": 2}}] * 2000]
    await fetching.fetches(15)
    assert [asked[0].fetch_offset for asked in fetching.asked if 0 in asked] == [2]
    assert contents(replica.log) == [(0, b"of 3")]
    fetching.cut_error = None
    await until(lambda: replica.log.log_end == 2)
    assert contents(replica.log) == [(0, b"of 3"), (1, b"new")]
    await fetching.stop()


@pytest.mark.parametrize(
    ("bounds", "goes_on"),
    [((10, 12), 10), ((0, 1), 1)],
)
async def test_out_of_range_goes_on_within_the_leaders_log(
    fetching: Fetching, bounds: tuple[int, int], goes_on: int
) -> None:
    fill(fetching.replica().log, "abc")
    fetching.bounds = bounds
    fetching.answers += [{0: {"error_code": int(ErrorCode.offset_out_of_range)}}]
    await fetching.fetches(2)
    assert fetching.asked[1][0].fetch_offset == goes_on
    assert len(fetching.cut) == 1


@pytest.mark.parametrize("bounds", [(0, 5), (3, 5), (0, 3)])
async def test_out_of_a_range_that_it_is_in_is_not_asked_for_at_once_again(
    fetching: Fetching, bounds: tuple[int, int]
) -> None:
    fill(fetching.replica().log, "abc")
    fetching.bounds = bounds
    fetching.answers += [{0: {"error_code": int(ErrorCode.offset_out_of_range)}}]
    await fetching.fetches(2)
    assert sorted(fetching.asked[1]) == [1]
    assert (fetching.replica().log.log_end, fetching.cut) == (3, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": batch(0, "x")[:-1] + b"?"},
        {"error_code": int(ErrorCode.not_leader_or_follower)},
        {"error_code": int(ErrorCode.unknown_leader_epoch)},
        {"error_code": int(ErrorCode.fenced_leader_epoch)},
        {"error_code": int(ErrorCode.kafka_storage_error)},
    ],
)
async def test_what_fails_is_put_off_and_holds_up_nothing(fetching: Fetching, wrong: dict[str, Any]) -> None:
    other = [{1: {"records": batch(n, f"{n}")}} for n in range(2)]
    fetching.answers += [{0: wrong} | other[0], other[1]]
    await fetching.fetches(3)
    assert [sorted(asked) for asked in fetching.asked[:2]] == [[0, 1], [1]]
    assert (fetching.replica(0).log.log_end, fetching.replica(1).log.log_end) == (0, 2)


@pytest.mark.parametrize("code", [ErrorCode.unknown_topic_id, ErrorCode.unknown_leader_epoch])
async def test_a_leader_whose_image_is_behind_is_asked_again_soon(
    fetching: Fetching, code: ErrorCode
) -> None:
    """The first record of a new topic must not wait a second for its followers; a dead topic may."""
    await fetching.fetches(1)
    (fetcher,) = [each for _, _, each in fetching.followers.fetchers()]
    place = next(iter(fetcher._followed))
    waits = []
    for _ in range(20):
        fetcher._failed(place, "orders-0", Unavailable("not yet"), int(code))
        waits.append(fetcher._later[place] - SystemClock().monotonic())
    assert 0 < waits[0] < 0.03
    assert waits[-1] > 40, "as everything else that fails"


async def test_who_was_given_records_is_behind_the_others_the_next_time(fetching: Fetching) -> None:
    """A leader that has no room for a session begins with the first one, as long as it has something."""
    fetching.answers += [{0: {"records": batch(0, "a")}}, {1: {"records": batch(0, "b")}}]
    await fetching.fetches(3)
    assert [list(asked) for asked in fetching.asked] == [[0, 1], [1, 0], [0, 1]]


async def test_what_fails_once_it_is_led_elsewhere_is_not_put_off(fetching: Fetching) -> None:
    def moved(address: Address, request: Any) -> dict[str, Any]:
        fetching.host.change_topic(followed(epoch=6, leader=-1))
        return fetching._at_once({"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]})

    fill(fetching.replica().log, "abc")
    fetching.brokers.answers[LIST_OFFSETS] = moved
    fetching.answers += [{0: {"error_code": int(ErrorCode.offset_out_of_range)}}]
    await fetching.fetches(1)
    (fetcher,) = [each for _, _, each in fetching.followers.fetchers()]
    await until(lambda: not fetcher._followed)
    await asyncio.sleep(0.05)
    assert fetcher._later == {}


async def test_a_leader_that_is_away_is_asked_again(fetching: Fetching) -> None:
    fetching.brokers.away.add(Address("b2", 9092))
    await fetching.fetches(0)
    await asyncio.sleep(0.05)
    fetching.brokers.away.clear()
    await fetching.fetches(1)


async def test_an_answer_of_before_the_election_is_dropped(fetching: Fetching) -> None:
    fetching.holds = True
    fetching.answers += [{0: {"records": batch(0, "late"), "high_watermark": 1}}, {}]
    await fetching.fetches(1)
    fetching.host.change_topic(followed(epoch=6))
    fetching.network.release()
    await fetching.fetches(2)
    assert fetching.asked[1][0].current_leader_epoch == 6
    assert fetching.replica().log.log_end == 0


async def test_who_is_elected_follows_no_more_though_an_answer_is_on_its_way(fetching: Fetching) -> None:
    fetching.holds = True
    fetching.answers += [{0: {"records": batch(0, "late"), "high_watermark": 1}}]
    await fetching.fetches(1)
    fetching.host.change_topic(led_by(followed(), 0, partition_image(0, epoch=6, replicas=(2, 1))))
    appended = fetching.host.partition("orders", 0).append(memoryview(records("mine")), 1)
    fetching.network.release()
    await fetching.fetches(2)
    assert appended.base_offset == 0
    assert contents(fetching.replica().log) == [(0, b"mine")]
    assert sorted(fetching.asked[1]) == [1]


async def test_a_topic_that_is_deleted_is_asked_for_no_more(fetching: Fetching) -> None:
    fetching.holds = True
    fetching.answers += [{0: {"records": batch(0, "late"), "high_watermark": 1}}]
    await fetching.fetches(1)
    fetching.host.remove_topic(ORDERS)
    fetching.network.release()
    await asyncio.sleep(0.05)
    assert len(fetching.asked) == 1


async def test_what_comes_late_of_a_deleted_topic_leaves_the_next_of_its_name_alone(
    fetching: Fetching,
) -> None:
    refused: list[Exception] = []
    fetching.host._disk.handles.on_refusal = refused.append
    fetching.holds = True
    fetching.answers += [{0: {"records": batch(5, "late"), "high_watermark": 6}}]  # after a gap
    await fetching.fetches(1)
    fetching.host.remove_topic(ORDERS)
    fetching.host.add_topic(topic_image(ORDERS, UUID(int=8), 2), LogConfig())
    mine = fetching.host.partition("orders", 0)
    mine.append(memoryview(records("mine")), 1)
    fetching.network.release()
    await asyncio.sleep(0.05)
    assert not (mine.log.folder / GAPS).exists()
    assert contents(mine.log) == [(0, b"mine")]
    assert not refused, "or the broker would take its disk for full and lead no more"


async def test_logs_are_opened_a_few_at_a_time(fetching: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts may follow thousands, and has others to answer meanwhile."""
    image = topic_image(TopicName.from_kafka("many"), UUID(int=9), 100)
    for index in range(100):
        image = led_by(image, index, partition_image(index, leader=2, epoch=5, replicas=(2, 1)))
    fetching.host.add_topic(image, LogConfig())
    opened = [0]
    replica_of = fetching.host.replica_of

    def counted(*place: Any) -> Replica:
        opened[-1] += 1
        return replica_of(*place)

    def turn() -> None:
        opened.append(0)
        asyncio.get_running_loop().call_soon(turn)

    monkeypatch.setattr(fetching.host, "replica_of", counted)
    turn()
    fetching.brokers.away.add(Address("b2", 9092))
    await fetching.fetches(0)
    await until(lambda: sum(opened) == 102)
    assert max(opened) <= 16


async def test_another_leader_is_another_fetchers(fetching: Fetching) -> None:
    await fetching.fetches(1)
    fetching.host.change_topic(followed(epoch=6, leader=3))
    await until(lambda: "b3" in fetching.brokers.of(FETCH))
    fetching.host.change_topic(followed(epoch=7, leader=-1))
    fetching.network.release()
    await asyncio.sleep(0.05)
    assert fetching.brokers.of(FETCH) == ["b2", "b3"]
