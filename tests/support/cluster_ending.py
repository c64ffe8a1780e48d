"""The end of a load on a cluster: what is there, held against what its clients were told."""

import time

import confluent_kafka as ck

from tests.compat.group_history import judge
from tests.support.cluster_history import Place
from tests.support.cluster_load import COPIERS, LEDGER, ORDERS, PATIENCE_S, PLACES, Load, reader


def check(load: Load, standstills: list[float] | None = None) -> None:
    """All that they were told is so.  At `standstills` a group's coordinator may have been cut off."""
    _Ending(load, standstills or []).check()
    assert not load.history.wrong, "\n".join(load.history.wrong[:20])


class _Ending:
    """The end of it, held against what clients were told."""

    def __init__(self, load: Load, standstills: list[float]) -> None:
        self._load = load
        self._history = load.history
        self._standstills = standstills

    def check(self) -> None:
        history = self._history
        self._until_all_ended()
        found = {isolation: self._everything(isolation) for isolation in ("all", "committed")}
        for place in found["all"]:
            history.check(place, found["all"][place], found["committed"][place])
        history.check_transactions(found["committed"])
        for name, members in self._load.members.items():
            history.wrong += (f"group {name}: {what}" for what in judge(members, self._standstills))
            self._check_commits(name, {k: v for member in members for k, v in member.journal.upto.items()})
        self._check_commits(COPIERS, {0: self._load.transactor.offset}, LEDGER)
        history.wrong += self._load.shared.wrong

    def _everything(self, isolation: str) -> dict[Place, dict[int, bytes]]:
        consumer = reader(self._load.client("final"), isolation, enable_partition_eof=True)
        found: dict[Place, dict[int, bytes]] = {place: {} for place in PLACES}
        reading = set(PLACES)
        deadline = time.monotonic() + PATIENCE_S
        while reading:
            assert time.monotonic() < deadline, f"the end of {reading} is not reached"
            for message in consumer.consume(2000, 0.2):
                place = Place(message.topic() or "", message.partition() or 0)
                if (error := message.error()) is None:
                    found[place][message.offset() or 0] = message.value() or b""
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    reading.discard(place)
        consumer.close()
        return found

    def _until_all_ended(self) -> None:
        """Markers are written beside the answer to whoever commits."""
        readers = [reader(self._load.client("ends"), isolation) for isolation in ("all", "committed")]
        deadline = time.monotonic() + PATIENCE_S
        for place in PLACES:
            part = ck.TopicPartition(*place)
            while len(ends := {consumer.get_watermark_offsets(part, 60) for consumer in readers}) > 1:
                assert time.monotonic() < deadline, f"{place}: a transaction is open: {ends}"
        for consumer in readers:
            consumer.close()

    def _check_commits(self, group: str, upto: dict[int, int], topic: str = ORDERS) -> None:
        consumer = ck.Consumer(self._load.client("bystander", group_id=group))
        places = [ck.TopicPartition(topic, index) for index in upto]
        for part in consumer.committed(places, 60):
            if part.offset < upto[part.partition]:
                self._history.say(
                    f"lost commit: group {group}: partition {part.partition} is at {part.offset}, "
                    f"{upto[part.partition]} was acknowledged"
                )
        consumer.close()
