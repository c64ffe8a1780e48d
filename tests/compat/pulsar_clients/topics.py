"""Topics: partitioned ones, patterns, non-persistent ones, who may produce, names that are none."""

import re
import threading
import time

import pulsar
from pulsar_transcript import Transcript, more, receive, shared_out, texts

Type = pulsar.ConsumerType
Access = pulsar.ProducerAccessMode


def partitioned(say: Transcript) -> None:
    say.section("partitioned topics")
    client = say.client
    topic = say.partitioned("parts", 4)
    say.line("partitions", [name.rpartition("-")[2] for name in client.get_topic_partitions(topic)])
    say.line("of a plain topic", len(client.get_topic_partitions(say.topic("plain"))))
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for i in range(40):
        producer.send(f"m{i}".encode(), partition_key=f"k{i % 10}")
    got = receive(consumer, 40)
    say.line("all there", sorted(int(t[1:]) for t in texts(got)) == list(range(40)))
    places: dict[str, set[int]] = {}
    for message in got:
        places.setdefault(message.partition_key(), set()).add(message.message_id().partition())
    say.line("where keys went", {key: sorted(each) for key, each in sorted(places.items())})
    one = client.subscribe(
        f"{topic}-partition-2", "only-two", initial_position=pulsar.InitialPosition.Earliest
    )
    say.line("one partition alone", sorted({m.partition_key() for m in receive(one, 40, timeout_ms=4000)}))
    status, _ = say.rest("POST", f"/admin/v2/persistent/public/default/{say.prefix}parts/partitions", 6)
    say.line("more partitions", status)
    say.line("now", len(client.get_topic_partitions(topic)))
    failover = [client.subscribe(topic, "f", Type.Failover, consumer_name=name) for name in ("a", "b")]
    time.sleep(1.5)
    fresh = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for i in range(60):
        fresh.send(f"f{i}".encode(), partition_key=f"key{i}")
    halves = shared_out(failover, 60)
    say.line("failover by partition", [sorted({m.message_id().partition() for m in half}) for half in halves])
    say.line("all of them", sum(map(len, halves)))


def patterns(say: Transcript) -> None:
    say.section("patterns")
    client = say.client
    producers = [client.create_producer(say.topic(f"pattern-{name}")) for name in ("a", "b", "other")]
    pattern = re.compile(f"persistent://public/default/{say.prefix}pattern-[ab].*")
    consumer = client.subscribe(pattern, "s", pattern_auto_discovery_period=1)
    for producer in producers:
        producer.send(producer.topic().rpartition("-")[2].encode())
    say.line("matching ones", sorted(texts(receive(consumer, 2))))
    say.line("no others", more(consumer))
    many = client.subscribe([say.topic("pattern-a"), say.topic("pattern-other")], "many")
    for producer in producers:
        producer.send(b"again")
    say.line("a list of topics", sorted(m.topic_name().rpartition("-")[2] for m in receive(many, 2)))


def non_persistent(say: Transcript) -> None:
    say.section("non-persistent topics")
    client = say.client
    topic = say.topic("np", "non-persistent://public/default/")
    producer = client.create_producer(topic)
    say.attempt("nobody there", lambda: producer.send(b"lost"))
    consumer = client.subscribe(topic, "s")
    other = client.subscribe(topic, "t", Type.Shared)
    for i in range(3):
        producer.send(f"m{i}".encode())
    say.line("to one subscription", texts(receive(consumer, 3)))
    say.line("to the other", texts(receive(other, 3)))
    consumer.close()
    producer.send(b"missed")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    say.line("what it missed is gone", more(consumer))
    sent = producer.send(b"x")
    say.line("receipt", [sent.ledger_id(), sent.entry_id()])


def access(say: Transcript) -> None:
    say.section("exclusive producers")
    client, topic = say.client, say.topic("access")
    one = client.create_producer(topic, access_mode=Access.Exclusive)
    one.send(b"1")
    say.attempt("another exclusive", lambda: client.create_producer(topic, access_mode=Access.Exclusive))
    say.attempt("a shared one", lambda: client.create_producer(topic))
    waited: list[pulsar.Producer] = []

    def wait() -> None:
        waited.append(
            client.create_producer(topic, access_mode=Access.WaitForExclusive, send_timeout_millis=10_000)
        )

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.7)
    say.line("one that waits, waits", len(waited))
    one.close()
    thread.join(60)
    say.line("until the other is gone", len(waited))
    waited[0].send(b"2")
    fencing = client.create_producer(topic, access_mode=Access.ExclusiveWithFencing)
    fencing.send(b"3")
    say.attempt("the fenced one", lambda: waited[0].send(b"no"))
    waited[0].close()
    fencing.close()
    shared = [client.create_producer(topic) for _ in range(2)]
    say.attempt(
        "exclusive beside shared", lambda: client.create_producer(topic, access_mode=Access.Exclusive)
    )
    for producer in shared:
        producer.send(b"4")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(40_000).data().decode())
    say.line("what got in", found)


def names(say: Transcript) -> None:
    say.section("names")
    client = say.client
    say.attempt("a short name", lambda: client.create_producer(f"{say.prefix}short"))
    for label, name in (
        ("no such tenant", f"persistent://nobody/default/{say.prefix}x"),
        ("no such namespace", f"persistent://public/nothing/{say.prefix}x"),
        ("not a domain", f"strange://public/default/{say.prefix}x"),
        ("empty", ""),
        ("no local part", "persistent://public/default/"),
        ("too few parts", f"persistent://public/{say.prefix}x"),
    ):
        say.attempt(label, lambda name=name: client.create_producer(name))
    producer = say.attempt("odd characters", lambda: client.create_producer(say.topic("a b:c=d%20é")))
    if producer is not None:
        consumer = client.subscribe(
            say.topic("a b:c=d%20é"), "s", initial_position=pulsar.InitialPosition.Earliest
        )
        producer.send(b"there")
        say.line("works", texts(receive(consumer, 1)))
    say.attempt("a subscription without a name", lambda: client.subscribe(say.topic("plain"), ""))


def deduplication(say: Transcript) -> None:
    say.section("deduplication")
    client = say.client
    namespace = f"public/{say.prefix}dedup"
    say.line("namespace", say.rest("PUT", f"/admin/v2/namespaces/{namespace}")[0])
    say.line("switched on", say.rest("POST", f"/admin/v2/namespaces/{namespace}/deduplication", True)[0])
    time.sleep(0.5)
    topic = f"persistent://{namespace}/t"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="p")
    for sequence in (1, 2, 2, 1, 3, 3, 5, 4):
        producer.send(str(sequence).encode(), sequence_id=sequence)
    say.line("once each", texts(receive(consumer, 8, timeout_ms=4000)))
    producer.close()
    producer = client.create_producer(topic, producer_name="p")
    say.line("the last sequence is known", producer.last_sequence_id())
    producer.send(b"old", sequence_id=5)
    producer.send(b"new", sequence_id=6)
    say.line("still once", texts(receive(consumer, 2, timeout_ms=4000)))


def main() -> None:
    say = Transcript(__doc__)
    partitioned(say)
    patterns(say)
    non_persistent(say)
    access(say)
    names(say)
    deduplication(say)
    say.client.close()


if __name__ == "__main__":
    main()
