"""Follower session: what of a fetch the leader knows already, so that it need not be said again (KIP-227).

    first         id 0, epoch 0     every partition is named; the answer has an id, or 0 if there is no room
    then          id n, epoch 1, 2  partitions whose end, start or epochs have changed since, or that are new
                                    or followed anew, so that nobody heard the last answer; those that are not
                                    fetched any more are forgotten
    it went wrong id n, epoch 0     the leader closes that one and begins another

Pure: it makes the fields of requests and is told of answers.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from anabranch.partition.following import Following
from anabranch.wire.kafka.schema import ErrorCode

_NO_ID, _FIRST_EPOCH, _LAST_EPOCH = 0, 0, (1 << 31) - 1
_OVER = (
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
)

Place = tuple[UUID, int]
Point = tuple[int, int, int, int]


class FollowerSession:
    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is the most to fetch of a partition at a time."""
        self._max_bytes = max_bytes
        self._id = _NO_ID
        self._epoch = _FIRST_EPOCH
        self._known: dict[Place, tuple[Following, Point]] = {}

    def asked(self, wanted: Mapping[Place, Following]) -> dict[str, Any]:
        """The fields of a request for `wanted`."""
        if self._epoch == _FIRST_EPOCH:
            self._known.clear()
        forgotten: dict[UUID, list[int]] = {}
        for place in [place for place in self._known if place not in wanted]:
            del self._known[place]
            forgotten.setdefault(place[0], []).append(place[1])
        topics: list[tuple[UUID, list[dict[str, Any]]]] = []  # as wanted, or the first topic is always first
        for place, following in wanted.items():
            told = following, following.point
            if self._known.get(place) != told:
                self._known[place] = told
                if not topics or topics[-1][0] != place[0]:
                    topics.append((place[0], []))
                topics[-1][1].append(following.asked(self._max_bytes))
        return {
            "session_id": self._id,
            "session_epoch": self._epoch,
            "topics": [{"topic_id": id, "partitions": parts} for id, parts in topics],
            "forgotten_topics_data": [
                {"topic_id": id, "partitions": indexes} for id, indexes in forgotten.items()
            ],
        }

    def is_over(self, error_code: int) -> bool:
        """Whether an answer with this error only says that the session is to be begun again."""
        if error_code not in _OVER:
            return False
        self.failed()
        if error_code == ErrorCode.fetch_session_id_not_found:
            self._id = _NO_ID
        return True

    def answered(self, session_id: int) -> None:
        if session_id == _NO_ID:
            self._id, self._epoch = _NO_ID, _FIRST_EPOCH
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def failed(self) -> None:
        """There was no answer, and nobody knows whether the leader took what it was told."""
        self._epoch = _FIRST_EPOCH
