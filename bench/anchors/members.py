"""Members of consumer groups, many to a process: librdkafka's consumers, polled by a thread together.

    with Members(bootstrap, "group", protocol="consumer") as members:
        members.add("clerk-1", ["orders"])
        members.until(lambda owned: ...)

Who owns what is kept as the callbacks tell it, which is what an application knows.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import confluent_kafka as ck

Place = tuple[str, int]
Owned = dict[str, set[Place]]

_POLL_S = 0.002


class Member:
    def __init__(self, name: str, topics: list[str], settings: dict[str, Any]) -> None:
        strategy = str(settings.get("partition.assignment.strategy", ""))
        self._by_steps = settings.get("group.protocol") == "consumer" or "cooperative" in strategy
        self.name = name
        self.owned: set[Place] = set()
        self.consumer = ck.Consumer(settings | {"client.id": name})
        self.consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: ck.Consumer, places: list[ck.TopicPartition]) -> None:
        new = {(each.topic, each.partition) for each in places}
        self.owned = self.owned | new if self._by_steps else new

    def _revoked(self, _: ck.Consumer, places: list[ck.TopicPartition]) -> None:
        self.owned = self.owned - {(each.topic, each.partition) for each in places}


class Members:
    def __init__(self, bootstrap: str, group: str, protocol: str = "classic", **settings: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self._members: list[Member] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def add(self, name: str, topics: list[str], **settings: str) -> None:
        told = {key.replace("_", "."): value for key, value in settings.items()}
        self._members = [*self._members, Member(name, topics, self._settings | told)]

    @property
    def owned(self) -> Owned:
        return {member.name: member.owned for member in self._members}

    def until(self, holds: Callable[[Owned], bool], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds(self.owned):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the group does not settle: {self.owned}")
            time.sleep(_POLL_S)

    def until_shared(self, wanted: set[Place], timeout_s: float = 60.0) -> None:
        """Every member owns something, and every place has one owner."""
        self.until(lambda owned: shared(owned, wanted), timeout_s)

    def _poll(self) -> None:
        while not self._over.is_set():
            for member in self._members:
                member.consumer.poll(0)
            time.sleep(_POLL_S)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        closing = [threading.Thread(target=member.consumer.close) for member in self._members]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        self._members = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def shared(owned: Owned, wanted: set[Place]) -> bool:
    parts = list(owned.values())
    return all(parts) and sum(map(len, parts)) == len(wanted) and set().union(*parts) == wanted
