"""Load on a cluster: real clients that write, read, and commit, whatever happens to its brokers.

    with Load(bootstrap, folder) as load:
        ...                     # something happens
        load.goes_on()          # every kind of client gets something done from now on
    check(load)                 # of cluster_ending

    orders   6 partitions, from idempotent producers; read by a classic group, one of KIP-848, a share group
    ledger   3 partitions, from a producer with transactions, each of which writes into all of them and
             commits an offset; every fourth is aborted

Two readers without a group read all of it, committed or not.  What is a client's to hide from its
application, and reaches it all the same, is in `history.wrong`: a record that is not delivered, a fatal
error, a transaction that must be aborted though nothing is wrong with it.
"""

import argparse
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka as ck

from tests.compat.group_members import Fenced, GivenUp, Journal, with_confluent
from tests.compat.group_processes import Member
from tests.compat.share_members import take
from tests.support.cluster_history import SOMEWHERE, Ended, History, Place, Transaction

ORDERS, LEDGER = "orders", "ledger"
PARTITIONS = {ORDERS: 6, LEDGER: 3}
PLACES = [Place(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
GROUPS = {"classic": "classic", "consumer": "consumer"}
"""Protocol by name."""
COPIERS, SHARERS = "copiers", "sharers"
_MEMBERS = 2
_SESSION_MS = 20_000
PATIENCE_S = 120.0

_CLIENT: dict[str, Any] = {"log_level": 0, "reconnect.backoff.max.ms": 1000}
"""Defaults, but that a broker that was away is found sooner than after ten seconds."""


class Load:
    def __init__(self, bootstrap: str, folder: Path, rate: float) -> None:
        """`rate`: records per second of each producer."""
        self.history = History()
        self.over = threading.Event()
        self._client = {**_CLIENT, "bootstrap.servers": bootstrap}
        self._pause_s = 1 / rate
        self._threads: list[threading.Thread] = []
        self.members = {
            name: [GroupMember(folder / f"{name}-{number}") for number in range(_MEMBERS)] for name in GROUPS
        }
        self.shared = SharedOut()
        self.transactor = Transactor(self, self._pause_s)

    def __enter__(self) -> Self:
        for number in range(2):
            self._begin(f"p{number}", self._produce, f"p{number}")
        self._begin("transactions", self.transactor.run)
        for isolation in ("all", "committed"):
            self._begin(f"reader of {isolation}", self._read, f"reader-{isolation}", isolation)
        for name, protocol in GROUPS.items():
            for number, member in enumerate(self.members[name]):
                self._begin(f"{name}-{number}", self._be_member, name, protocol, member)
        self._begin("sharer", self._share)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """All clients finish what they are at."""
        self.over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self.history.say(f"{thread.name} does not end")
        for members in self.members.values():
            for member in members:
                member.journal.close()

    def _begin(self, name: str, work: Callable[..., None], *args: object) -> None:
        def run() -> None:
            try:
                work(*args)
            except Exception as error:  # noqa: BLE001  it is told in the end
                self.history.say(f"{name}: {error!r}")

        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()

    def client(self, name: str, **options: Any) -> dict[str, Any]:
        """The configuration of one of our clients."""

        def failed(error: ck.KafkaError) -> None:
            if error.fatal():
                self.history.say(f"{name}: {error}")

        settings = {key.replace("_", "."): value for key, value in options.items()}
        return {**self._client, "client.id": name, "error_cb": failed, **settings}

    # --- writers

    def _produce(self, name: str) -> None:
        history = self.history
        producer = ck.Producer(
            self.client(name, enable_idempotence=True, compression_type="lz4" if name == "p0" else "none")
        )

        def told(number: int, error: ck.KafkaError | None, message: ck.Message) -> None:
            place = Place(ORDERS, message.partition() or 0)
            if error is not None:
                history.say(f"{place}: {name} {number}: not delivered: {error}")
            else:
                offset = message.offset()
                history.stored(place, name, number, SOMEWHERE if offset is None or offset < 0 else offset)

        number = 0
        while not self.over.is_set():
            for partition in range(PARTITIONS[ORDERS]):
                producer.produce(
                    ORDERS,
                    f"{name} {number}".encode(),
                    partition=partition,
                    on_delivery=lambda error, message, number=number: told(number, error, message),
                )
            number += 1
            due_s = time.monotonic() + self._pause_s * PARTITIONS[ORDERS]
            while (left_s := due_s - time.monotonic()) > 0:
                producer.poll(left_s)
        if left := producer.flush(PATIENCE_S):
            history.say(f"{name}: {left} records are not delivered in the end")

    # --- readers

    def _read(self, name: str, isolation: str) -> None:
        history = self.history
        note = history.got_committed if isolation == "committed" else history.got
        consumer = reader(self.client(name), isolation)
        while not self.over.is_set():
            for message in consumer.consume(500, 0.2):
                if (error := message.error()) is not None:
                    if not is_passing(error):
                        history.say(f"{name}: {error}")
                    continue
                place = Place(message.topic() or "", message.partition() or 0)
                note(name, place, message.offset() or 0, message.value() or b"")
        consumer.close()

    def _be_member(self, name: str, protocol: str, member: "GroupMember") -> None:
        told = argparse.Namespace(
            bootstrap=self._client["bootstrap.servers"],
            topic=ORDERS,
            group=name,
            protocol=protocol,
            instance="",
            session_ms=_SESSION_MS,
            poll_ms=4 * _SESSION_MS,
            assignor="range",
        )
        # librdkafka 2.16 says that it owns nothing, at its first heartbeat after it was given something: what
        # another member gets of that then belongs to both for a moment.  So each one joins a group at rest.
        before = self.members[name][: self.members[name].index(member)]
        while not all(one.journal.commits or self.over.is_set() for one in before):
            self.over.wait(0.05)
        try:
            with_confluent(told, member.journal, self.over.is_set)
        except (GivenUp, Fenced) as error:
            self.history.say(f"member of {name}: {error!r}")

    def _share(self) -> None:
        consumer = ck.ShareConsumer(
            {**self._client, "group.id": SHARERS, "share.acknowledgement.mode": "explicit"}
        )
        consumer.subscribe([ORDERS])
        while not self.over.is_set():
            take(consumer, self.shared.note, 0.0, explicit=True)
        consumer.close()

    # --- what is to be so

    def goes_on(self) -> None:
        """Wait until each kind of client has got on since now."""
        before = self._progress()
        deadline = time.monotonic() + PATIENCE_S
        while stuck := [kind for kind, count in self._progress().items() if count <= before[kind]]:
            assert not self.history.wrong, self.history.wrong[:5]
            assert time.monotonic() < deadline, f"{stuck} do not get on, from {before}"
            time.sleep(0.05)

    def pauses(self, since_s: float) -> dict[str, float]:
        """For how long nothing was acknowledged since then, at most: of records, transactions, commits."""
        told = {
            str(place): self.history.acknowledged_s[place]
            for place in (Place(ORDERS, index) for index in range(PARTITIONS[ORDERS]))
        }
        told["transactions"] = self.transactor.committed_s
        for name, members in self.members.items():
            told[name] = sorted(time_s for member in members for time_s in member.journal.committed_s)
        return {name: round(longest_pause_s(times, since_s), 1) for name, times in told.items()}

    def _progress(self) -> dict[str, int]:
        history = self.history
        told = {
            str(place): len(history.acknowledged_s[place])
            for place in (Place(ORDERS, index) for index in range(PARTITIONS[ORDERS]))
        }
        told["transactions"] = self.transactor.committed
        told |= {
            f"group {name}": sum(member.journal.commits for member in self.members[name]) for name in GROUPS
        }
        told["share group"] = len(self.shared.accepted)
        for reader in ("all", "committed"):
            for topic in PARTITIONS:
                told[f"reader of {reader} {topic}"] = len(history.read[f"reader-{reader}", Place(topic, 0)])
        return told


class Transactor:
    """One transaction after the other."""

    def __init__(self, load: Load, pause_s: float) -> None:
        self._load = load
        self._pause_s = pause_s
        self.committed = 0
        self.committed_s: list[float] = []
        self.offset = -1
        """The greatest that was committed with a transaction."""

    def run(self) -> None:
        load = self._load
        # librdkafka 2.16 forgets a broker that is away and starts over; a transaction then may wait for the
        # one that it has forgotten, for ever.
        options = {"transactional_id": "t", "transaction_timeout_ms": 240_000, "linger_ms": 1}
        # So does sending offsets (its issue 5511), until a connection changes after what it knows of the
        # group's coordinator is too old.
        options |= {"connections_max_idle_ms": 5_000, "metadata_max_age_ms": 10_000}
        producer = ck.Producer(load.client("t", metadata_recovery_strategy="none", **options))
        group = ck.Consumer(load.client("group of t", group_id=COPIERS)).consumer_group_metadata()
        self._insist(lambda: producer.init_transactions(PATIENCE_S))
        count = dict.fromkeys(range(PARTITIONS[LEDGER]), 0)
        number = 0
        while not load.over.is_set():
            number += 1
            values = {Place(LEDGER, index): [b"t %d" % count[index]] for index in count}
            one = Transaction(f"transaction {number}", values)
            load.history.begun(one)
            try:
                self._one(producer, group, one, number)
            except ck.KafkaException as error:
                load.history.say(f"{one.name} cannot go on: {error}")
                self._insist(lambda: producer.abort_transaction(PATIENCE_S))
                load.history.ended(one, Ended.ABORTED)
            for index in count:
                count[index] += 1
            load.over.wait(self._pause_s)

    def _one(self, producer: ck.Producer, group: object, one: Transaction, number: int) -> None:
        history = self._load.history
        producer.begin_transaction()
        for place, (value,) in one.values.items():
            producer.produce(LEDGER, value, partition=place.partition)
        # What librdkafka 2.16 would send again it drops when it aborts, and gives its sequence number to the
        # next record, which a leader that has the first one takes for a duplicate.
        while producer.flush(10):
            pass
        if number % 4 == 0:
            history.ended(one, Ended.ABORTED)
            self._insist(lambda: producer.abort_transaction(PATIENCE_S))
            return
        offset = [ck.TopicPartition(LEDGER, 0, number)]
        self._insist(lambda: producer.send_offsets_to_transaction(offset, group, PATIENCE_S))
        history.ended(one, Ended.COMMITTING)
        self._insist(lambda: producer.commit_transaction(PATIENCE_S))
        history.ended(one, Ended.COMMITTED)
        self.offset = number
        self.committed += 1
        self.committed_s.append(time.monotonic())

    def _insist(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except ck.KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


class CountedJournal(Journal):
    """Knows how often what was read was committed, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits = 0
        self.committed_s: list[float] = []
        self.upto: dict[int, int] = {}

    def committed(self, offsets: dict[int, int]) -> None:
        self.commits += 1
        self.committed_s.append(time.monotonic())
        self.upto |= offsets

    def close(self) -> None:
        self._file.close()


class GroupMember(Member):
    """A thread of this process instead of a process."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self.journal = CountedJournal(journal)
        self.instance = ""
        self.killed_s = float("inf")
        self.frozen = []


class SharedOut:
    """What a share group's member was told."""

    def __init__(self) -> None:
        self.accepted: dict[tuple[int, int], float] = {}
        self.wrong: list[str] = []

    def note(self, what: str, *rest: Any) -> None:
        match what:
            case "got" if rest[:2] in self.accepted:
                self.wrong.append(f"share group: {rest[:2]} was accepted, and came again")
            case "done":
                self.accepted[rest[:2]] = time.monotonic()


def longest_pause_s(times: list[float], since_s: float) -> float:
    later = [since_s, *(time_s for time_s in times if time_s > since_s), time.monotonic()]
    return max(after - before for before, after in pairwise(later))


def reader(client: dict[str, Any], isolation: str, *, enable_partition_eof: bool = False) -> ck.Consumer:
    """Of all there is, from the beginning; that an offset is gone is an error."""
    options = {
        "isolation.level": "read_committed" if isolation == "committed" else "read_uncommitted",
        "enable.partition.eof": enable_partition_eof,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    consumer = ck.Consumer({**client, **options})
    consumer.assign([ck.TopicPartition(*place, 0) for place in PLACES])
    return consumer


def is_passing(error: ck.KafkaError) -> bool:
    """A client goes on after it by itself."""
    return bool(error.retriable()) or error.code() in (
        ck.KafkaError._ALL_BROKERS_DOWN,
        ck.KafkaError._TRANSPORT,
        ck.KafkaError._TIMED_OUT,
        ck.KafkaError._RESOLVE,
    )
