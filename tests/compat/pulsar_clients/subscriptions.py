"""Subscriptions: who gets what in the four modes, what an ack settles, what comes again."""

import time
from datetime import timedelta

import pulsar
from pulsar_transcript import Transcript, more, receive, shared_out, texts

Type = pulsar.ConsumerType
ACKED_S = 1.5  # the client groups acknowledgements for 0.1 s, and a machine may stand still for longer


def send(producer: pulsar.Producer, *names: str, **how: object) -> None:
    for name in names:
        producer.send(name.encode(), **how)


def exclusive(say: Transcript) -> None:
    say.section("exclusive")
    client, topic = say.client, say.topic("exclusive")
    first = client.subscribe(topic, "s")
    say.attempt("a second consumer", lambda: client.subscribe(topic, "s"))
    say.attempt("a second one, shared", lambda: client.subscribe(topic, "s", Type.Shared))
    producer = client.create_producer(topic)
    send(producer, "a", "b", "c")
    got = receive(first, 3, ack=False)
    first.acknowledge(got[0])
    say.line("received", texts(got))
    first.close()
    again = client.subscribe(topic, "s")
    got = receive(again, 2, ack=False)
    say.line("what was not acknowledged comes again", texts(got))
    again.acknowledge_cumulative(got[1])
    time.sleep(ACKED_S)
    again.redeliver_unacknowledged_messages()
    say.line("after a cumulative ack", more(again))
    send(producer, "d", "e")
    say.line("and then", texts(receive(again, 2, ack=False)))
    again.redeliver_unacknowledged_messages()
    got = receive(again, 2)
    say.line("redelivered on request", texts(got))
    other = client.subscribe(topic, "from-the-start", initial_position=pulsar.InitialPosition.Earliest)
    say.line("another subscription from the earliest", texts(receive(other, 5)))
    latest = client.subscribe(topic, "from-now")
    say.line("another from the latest", more(latest))
    say.attempt("unsubscribe", other.unsubscribe)
    other = client.subscribe(topic, "from-the-start", initial_position=pulsar.InitialPosition.Earliest)
    say.line("made again it begins again", texts(receive(other, 5)))


def failover(say: Transcript) -> None:
    say.section("failover")
    client, topic = say.client, say.topic("failover")
    producer = client.create_producer(topic)
    one = client.subscribe(topic, "s", Type.Failover, consumer_name="a")
    two = client.subscribe(topic, "s", Type.Failover, consumer_name="b")
    time.sleep(1.5)
    send(producer, *(f"m{i}" for i in range(6)))
    halves = dict(zip((one, two), shared_out((one, two), 6, ack=False), strict=True))
    active, standby = sorted((one, two), key=lambda each: -len(halves[each]))  # by a hash of the topic's name
    got = halves[active]
    say.line("the active one", texts(got))
    say.line("the other", texts(halves[standby]))
    active.acknowledge(got[0])
    active.acknowledge(got[1])
    time.sleep(ACKED_S)
    active.close()
    say.line("the successor", texts(receive(standby, 4)))
    send(producer, "n0", "n1")
    say.line("and then", texts(receive(standby, 2)))


def shared(say: Transcript) -> None:
    say.section("shared")
    client, topic = say.client, say.topic("shared")
    producer = client.create_producer(topic)
    consumers = [client.subscribe(topic, "s", Type.Shared, receiver_queue_size=10) for _ in range(3)]
    send(producer, *(f"m{i}" for i in range(30)))
    got = shared_out(consumers, 30)
    say.line("together", sorted((text for each in got for text in texts(each)), key=lambda t: int(t[1:])))
    say.line("nobody went empty", [bool(each) for each in got])
    say.attempt("cumulative acks", lambda: consumers[0].acknowledge_cumulative(got[0][0]))
    for consumer in consumers:
        consumer.close()

    one = client.subscribe(topic, "t", Type.Shared, negative_ack_redelivery_delay_ms=300)
    send(producer, "x", "y", "z")
    first = receive(one, 3, ack=False)
    one.acknowledge(first[0])
    one.acknowledge(first[2])
    one.negative_acknowledge(first[1])
    again = receive(one, 1)
    say.line("negative ack", [(m.data().decode(), m.redelivery_count()) for m in again])
    say.line("nothing more", more(one))
    send(producer, "p", "q")
    receive(one, 2, ack=False)
    two = client.subscribe(topic, "t", Type.Shared)
    one.close()
    again = receive(two, 2)
    say.line("a closed consumer's go to the other", sorted(texts(again)))


def ack_timeout(say: Transcript) -> None:
    say.section("ack timeout")
    client, topic = say.client, say.topic("ack-timeout")
    consumer = client.subscribe(topic, "s", Type.Shared, unacked_messages_timeout_ms=10_000)
    producer = client.create_producer(topic)
    send(producer, "slow")
    receive(consumer, 1, ack=False)
    again = receive(consumer, 1, timeout_ms=60_000)
    say.line("comes again", [(m.data().decode(), m.redelivery_count()) for m in again])


def key_shared(say: Transcript) -> None:
    say.section("key_shared")
    client, topic = say.client, say.topic("key-shared")
    producer = client.create_producer(topic)
    consumers = [client.subscribe(topic, "s", Type.KeyShared) for _ in range(3)]
    for i in range(60):
        producer.send(str(i).encode(), partition_key=f"k{i % 12}")
    got = shared_out(consumers, 60)
    owners: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}
    for number, messages in enumerate(got):
        for message in messages:
            owners.setdefault(message.partition_key(), set()).add(number)
            order.setdefault(message.partition_key(), []).append(int(message.data()))
    say.line("all there", sum(map(len, got)))
    say.line("a key has one owner", sorted({len(each) for each in owners.values()}))
    say.line("in order by key", all(each == sorted(each) for each in order.values()))
    say.line("more than one consumer works", len(set().union(*owners.values())) > 1)

    say.section("key_shared, sticky ranges")
    topic = say.topic("sticky")
    producer = client.create_producer(topic)
    low = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(0, 32767)])
    high = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(32768, 65535)])
    one = client.subscribe(topic, "s", Type.KeyShared, key_shared_policy=low)
    two = client.subscribe(topic, "s", Type.KeyShared, key_shared_policy=high)
    say.attempt(
        "ranges that overlap", lambda: client.subscribe(topic, "s", Type.KeyShared, key_shared_policy=low)
    )
    for i in range(40):
        producer.send(str(i).encode(), partition_key=f"key-{i}")
    say.line("by range", [sorted(int(t) for t in texts(got)) for got in shared_out((one, two), 40)])


def batch_indexes(say: Transcript) -> None:
    say.section("acks inside a batch")
    client, topic = say.client, say.topic("batch-index")
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=6, batching_max_publish_delay_ms=5000
    )
    for indexed in (True, False):
        name = f"s-{indexed}"
        consumer = client.subscribe(topic, name, Type.Shared, batch_index_ack_enabled=indexed)
        for i in range(6):
            producer.send_async(f"{i}".encode(), None)
        producer.flush()
        got = receive(consumer, 6, ack=False)
        for number in (0, 2, 5):
            consumer.acknowledge(got[number])
        time.sleep(ACKED_S)
        consumer.close()
        consumer = client.subscribe(topic, name, Type.Shared, batch_index_ack_enabled=indexed)
        say.line(f"batch index acks {indexed}", texts(receive(consumer, 6, timeout_ms=3000)))
        consumer.close()


def dead_letters(say: Transcript) -> None:
    say.section("dead letters")
    client, topic = say.client, say.topic("dead")
    policy = pulsar.ConsumerDeadLetterPolicy(
        max_redeliver_count=2, dead_letter_topic=say.topic("dlq"), initial_subscription_name="init"
    )
    consumer = client.subscribe(
        topic, "s", Type.Shared, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=200
    )
    producer = client.create_producer(topic)
    send(producer, "poison", partition_key="k", properties={"a": "b"})
    send(producer, "fine")
    seen: list[tuple[str, int]] = []
    while len(seen) < 4:
        got = receive(consumer, 1, ack=False, timeout_ms=20_000)
        if not got:
            break
        [message] = got
        seen.append((message.data().decode(), message.redelivery_count()))
        if message.data() == b"poison":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    say.line("tries", sorted(seen))
    dead = client.subscribe(say.topic("dlq"), "init", Type.Shared)
    for message in receive(dead, 1):
        say.line(
            "dead letter", [message.data().decode(), message.partition_key(), message.properties().get("a")]
        )
    say.line("nothing more", more(consumer))


def delayed(say: Transcript) -> None:
    say.section("delayed delivery")
    client, topic = say.client, say.topic("delayed")
    consumer = client.subscribe(topic, "s", Type.Shared)
    alone = client.subscribe(topic, "alone")
    producer = client.create_producer(topic)
    began = time.monotonic()
    producer.send(b"late", deliver_after=timedelta(seconds=8))
    producer.send(b"soon", deliver_at=int(time.time() * 1000) + 4000)
    producer.send(b"now")
    got = receive(consumer, 3, timeout_ms=30_000)
    say.line("shared: by time", texts(got))
    say.line(
        "not much too early", time.monotonic() - began >= 6.9
    )  # Pulsar's clock for it ticks by the second
    say.line("exclusive: by order", texts(receive(alone, 3)))


def main() -> None:
    say = Transcript(__doc__)
    exclusive(say)
    failover(say)
    shared(say)
    key_shared(say)
    batch_indexes(say)
    dead_letters(say)
    delayed(say)
    ack_timeout(say)
    say.client.close()


if __name__ == "__main__":
    main()
