"""Rows of groups and transactions: what is compared, and what is to be reached, as ratios ours / Kafka's.

A row's `load` runs once against a broker and gives its figures:

    settled_s     from a member's subscribe() (of the last one, where many start) until every partition has
                  one owner and every member a partition, as the members' own callbacks tell it
    commits_s     OffsetCommit requests per second;  offsets_s: the offsets in them
    records_s     records per second in committed transactions, or read by share consumers

Members are librdkafka's, with its defaults: they heartbeat every three seconds, so a join comes at a moment
of that beat that a row's `round` chooses, the same for both brokers.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import commit_load
import confluent_kafka as ck
import share_load
from confluent_kafka.admin import AdminClient, NewTopic
from matrix import AT_LEAST, AT_MOST, Target
from members import Members
from pairs import Server
from process import cpu_s
from servers import ROOT

sys.path.insert(0, str(ROOT))
from tests.compat.share_processes import tell_group

FIGURES = ("settled_s", "commits_s", "offsets_s", "records_s", "cpu_per_record", "cpu_per_commit")
BEAT_S = 3.0
MANY = 100

Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    name: str
    load: Callable[[Server, int], Figures]
    """Of a broker, in the round of this number."""
    targets: dict[str, Target]


def make_topic(bootstrap: str, partitions: int) -> str:
    name = f"bench-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(timeout=30)
    while len(admin.list_topics(name, timeout=10).topics[name].partitions) < partitions:
        time.sleep(0.05)
    return name


def second_member(protocol: str, server: Server, round_number: int) -> Figures:
    topic = make_topic(server.bootstrap, 6)
    wanted = {(topic, index) for index in range(6)}
    with Members(server.bootstrap, topic, protocol) as members:
        members.add("one", [topic])
        members.until_shared(wanted)
        time.sleep(BEAT_S + BEAT_S * (round_number % 5) / 5)
        started = time.monotonic()
        members.add("two", [topic])
        members.until_shared(wanted)
        return {"settled_s": time.monotonic() - started}


def many_members(protocol: str, server: Server, round_number: int) -> Figures:
    """A group of a hundred that is settled; one more comes."""
    topic = make_topic(server.bootstrap, MANY + 1)
    wanted = {(topic, index) for index in range(MANY + 1)}
    with Members(server.bootstrap, topic, protocol) as members:
        for number in range(MANY):
            members.add(f"member-{number}", [topic])
        members.until_shared(wanted)
        time.sleep(BEAT_S + BEAT_S * (round_number % 5) / 5)
        started = time.monotonic()
        members.add("the next", [topic])
        members.until_shared(wanted)
        return {"settled_s": time.monotonic() - started}


def many_start(protocol: str, server: Server, _: int) -> Figures:
    """A hundred members of a new group are started together."""
    topic = make_topic(server.bootstrap, MANY)
    wanted = {(topic, index) for index in range(MANY)}
    with Members(server.bootstrap, topic, protocol) as members:
        started = time.monotonic()
        for number in range(MANY):
            members.add(f"member-{number}", [topic])
        members.until_shared(wanted)
        return {"settled_s": time.monotonic() - started}


def commits(window: int, partitions: int, requests: int, server: Server, _: int) -> Figures:
    topic = make_topic(server.bootstrap, partitions)
    groups = [f"{topic}-{number}" for number in range(4)]
    before = cpu_s(*server.pids)
    took_s = commit_load.commit(server.bootstrap, groups, topic, partitions, window, requests)
    count = requests * len(groups)
    return {
        "commits_s": count / took_s,
        "offsets_s": count * partitions / took_s,
        "cpu_per_commit": (cpu_s(*server.pids) - before) / count,
    }


def transactions(count: int, server: Server, _: int) -> Figures:
    """Transactions one after the other, 100 records of 100 bytes in each."""
    topic = make_topic(server.bootstrap, 1)
    settings = {"bootstrap.servers": server.bootstrap, "transactional.id": topic, "log_level": 0}
    producer = ck.Producer(settings | {"linger.ms": 0})
    producer.init_transactions(30)
    before, started = cpu_s(*server.pids), time.monotonic()
    for _number in range(count):
        producer.begin_transaction()
        for _record in range(100):
            producer.produce(topic, b"x" * 100)
        producer.commit_transaction(30)
    took_s = time.monotonic() - started
    records = count * 100
    return {"records_s": records / took_s, "records": records, "broker_cpu_s": cpu_s(*server.pids) - before}


def shared(consumers: int, records: int, server: Server, _: int) -> Figures:
    """A share group reads 100-byte records of four partitions to the end."""
    topic = make_topic(server.bootstrap, 4)
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "log_level": 0, "linger.ms": 20})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, b"x" * 100, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)
    tell_group(server.bootstrap, topic, {"share.auto.offset.reset": "earliest"})
    before = cpu_s(*server.pids)
    took_s = share_load.drain(server.bootstrap, topic, topic, consumers, records)
    return {
        "records_s": records / took_s,
        "cpu_per_record": (cpu_s(*server.pids) - before) / records,
    }


def no_slower(figure: str) -> dict[str, Target]:
    return {figure: (AT_LEAST, 1.0)}


def within(ratio: float) -> dict[str, Target]:
    return {"settled_s": (AT_MOST, ratio)}


ROWS = (
    Row("a second member joins, classic", partial(second_member, "classic"), within(0.5)),
    Row("a second member joins, KIP-848", partial(second_member, "consumer"), within(0.2)),
    Row("100 members and one more, classic", partial(many_members, "classic"), within(1.0)),
    Row("100 members and one more, KIP-848", partial(many_members, "consumer"), within(1.0)),
    Row("100 members start, classic", partial(many_start, "classic"), within(1.0)),
    Row("100 members start, KIP-848", partial(many_start, "consumer"), within(1.0)),
    Row("commits, 4 groups, each waits", partial(commits, 1, 1, 1_000), no_slower("commits_s")),
    Row("commits, 4 groups, 16 under way", partial(commits, 16, 1, 10_000), no_slower("commits_s")),
    Row("commits of 100 offsets, 4 groups", partial(commits, 4, 100, 300), no_slower("offsets_s")),
    Row("a share group of 4 consumers", partial(shared, 4, 1_000_000), no_slower("records_s")),
    Row("transactions of 100 records", partial(transactions, 200), no_slower("records_s")),
)
