"""A follower's fetch session: what is named, what is forgotten, and how it begins anew."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.base.disk import DirectDisk
from anabranch.log.config import LogConfig
from anabranch.partition.follower_session import FollowerSession, Place
from anabranch.partition.following import Following
from anabranch.wire.kafka.schema import ErrorCode
from tests.support.hosts import a_host
from tests.support.images import topic_image
from tests.support.logs import put, records

ID = UUID(int=7)


@pytest.fixture
def wanted(tmp_path: Path) -> dict[Place, Following]:
    host = a_host(tmp_path)
    host.recover()
    host.add_topic(topic_image("orders", ID, 3), LogConfig())
    topic = host.topic("orders")
    return {(ID, index): Following(host.replica_of(topic, index), 0, DirectDisk()) for index in range(3)}


def named(fields: dict[str, Any]) -> tuple[int, int, list[int], list[int]]:
    """Session, epoch, the partitions that are named and those that are forgotten."""
    parts = [part["partition"] for topic in fields["topics"] for part in topic["partitions"]]
    gone = [index for topic in fields["forgotten_topics_data"] for index in topic["partitions"]]
    return fields["session_id"], fields["session_epoch"], parts, gone


def test_only_what_has_changed_is_named(wanted: dict[Place, Following]) -> None:
    session = FollowerSession(1000)
    assert named(session.asked(wanted)) == (0, 0, [0, 1, 2], [])
    session.answered(5)
    assert named(session.asked(wanted)) == (5, 1, [], [])
    session.answered(5)
    put(wanted[ID, 1].replica.log, records("x"), 0)
    assert named(session.asked(wanted)) == (5, 2, [1], [])
    session.answered(5)
    less = {place: following for place, following in wanted.items() if place[1]}
    assert named(session.asked(less)) == (5, 3, [], [0])
    session.answered(5)
    assert named(session.asked(wanted)) == (5, 4, [0], [])


def test_what_is_followed_anew_is_named_again(wanted: dict[Place, Following]) -> None:
    session = FollowerSession(1000)
    session.asked(wanted)
    session.answered(5)
    wanted[ID, 1] = Following(wanted[ID, 1].replica, 0, DirectDisk())
    assert named(session.asked(wanted)) == (5, 1, [1], [])


def test_without_room_all_are_named_each_time(wanted: dict[Place, Following]) -> None:
    session = FollowerSession(1000)
    for _ in range(3):
        assert named(session.asked(wanted)) == (0, 0, [0, 1, 2], [])
        session.answered(0)


@pytest.mark.parametrize(
    ("code", "id"),
    [(ErrorCode.fetch_session_id_not_found, 0), (ErrorCode.invalid_fetch_session_epoch, 5), (None, 5)],
)
def test_what_went_wrong_begins_anew(wanted: dict[Place, Following], code: ErrorCode | None, id: int) -> None:
    session = FollowerSession(1000)
    session.asked(wanted)
    session.answered(5)
    session.asked(wanted)
    if code is None:
        session.failed()
    else:
        assert session.is_over(code)
    assert named(session.asked(wanted)) == (id, 0, [0, 1, 2], [])


def test_other_errors_are_not_the_sessions() -> None:
    assert not FollowerSession(1000).is_over(ErrorCode.not_leader_or_follower)
