"""Positions: seek, readers, last message ids, what a restart of the consumer remembers."""

import time

import pulsar
from pulsar_transcript import Transcript, more, receive, texts

Type = pulsar.ConsumerType
Id = pulsar.MessageId


def seeking(say: Transcript) -> None:
    say.section("seek")
    client, topic = say.client, say.topic("seek")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    ids = [producer.send(f"m{i}".encode()) for i in range(5)]
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    ids += [producer.send(f"m{i}".encode()) for i in range(5, 10)]
    say.line("all", texts(receive(consumer, 10)))
    for label, where in (
        ("to an id", ids[3]),
        ("to earliest", Id.earliest),
        ("to latest", Id.latest),
        ("to a time", middle),
        ("to the future", int(time.time() * 1000) + 3_600_000),
        ("to the first id", ids[0]),
    ):
        say.attempt(f"seek {label}", lambda where=where: consumer.seek(where))
        say.line("then", texts(receive(consumer, 10, timeout_ms=4000)))
    producer.send(b"m10")
    say.line("and what comes", texts(receive(consumer, 1)))

    say.section("seek of a shared subscription")
    shared = client.subscribe(topic, "t", Type.Shared, initial_position=pulsar.InitialPosition.Earliest)
    say.line("all", len(receive(shared, 11)))
    shared.seek(ids[7])
    say.line("then", sorted(texts(receive(shared, 11, timeout_ms=4000))))

    say.section("seek inside a batch")
    topic = say.topic("seek-batch")
    consumer = client.subscribe(topic, "s")
    batched = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=5000
    )
    for i in range(10):
        batched.send_async(f"b{i}".encode(), None)
    batched.flush()
    got = receive(consumer, 10)
    consumer.seek(got[7].message_id())
    say.line("from the eighth", texts(receive(consumer, 10, timeout_ms=4000)))


def readers(say: Transcript) -> None:
    say.section("readers")
    client, topic = say.client, say.topic("read")
    producer = client.create_producer(topic)
    ids = [producer.send(f"m{i}".encode()) for i in range(6)]

    def read(start: Id, **how: object) -> list[str]:
        reader = client.create_reader(topic, start, **how)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(40_000).data().decode())
        reader.close()
        return found

    say.line("from earliest", read(Id.earliest))
    say.line("from latest", read(Id.latest))
    say.line("after an id", read(ids[2]))
    say.line("from an id", read(ids[2], start_message_id_inclusive=True))
    say.line("after the last", read(ids[5]))
    say.line("from the last", read(ids[5], start_message_id_inclusive=True))
    tail = client.create_reader(topic, Id.latest)
    say.line("nothing yet", tail.has_message_available())
    producer.send(b"new")
    say.line("the new one", tail.read_next(40_000).data().decode())
    tail.seek(ids[4])
    say.line("seek", tail.read_next(40_000).data().decode())
    two = [client.create_reader(topic, Id.earliest) for _ in range(2)]
    say.line("readers do not share", [reader.read_next(40_000).data().decode() for reader in two])
    empty = client.create_reader(say.topic("nothing-here"), Id.earliest)
    say.line("an empty topic", empty.has_message_available())

    say.section("readers inside batches")
    topic = say.topic("read-batch")
    batched = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=5000
    )
    for i in range(10):
        batched.send_async(f"b{i}".encode(), None)
    batched.flush()
    reader = client.create_reader(topic, Id.earliest)
    places = [reader.read_next(40_000).message_id() for _ in range(10)]
    reader.close()
    for inclusive in (False, True):
        reader = client.create_reader(topic, places[3], start_message_id_inclusive=inclusive)
        say.line(f"from the fourth, inclusive {inclusive}", reader.read_next(40_000).data().decode())
        reader.close()


def last_ids(say: Transcript) -> None:
    say.section("last message id")
    client, topic = say.client, say.topic("last")
    consumer = client.subscribe(topic, "s")
    nothing = consumer.get_last_message_id()
    say.line("of an empty topic", [nothing.batch_index(), nothing.partition()])
    producer = client.create_producer(topic)
    sent = producer.send(b"one")
    say.line("of one message", consumer.get_last_message_id() == sent)
    batched = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=5000
    )
    for i in range(5):
        batched.send_async(f"b{i}".encode(), None)
    batched.flush()
    say.line("of a batch", consumer.get_last_message_id().batch_index())
    got = receive(consumer, 6)
    say.line("is the last one received", got[-1].message_id() == consumer.get_last_message_id())


def zero_queue(say: Transcript) -> None:
    say.section("zero receiver queue")
    client, topic = say.client, say.topic("zero")
    consumer = client.subscribe(topic, "s", receiver_queue_size=0)
    producer = client.create_producer(topic)
    for i in range(4):
        producer.send(f"m{i}".encode())
    found = []
    for _ in range(4):
        message = consumer.receive()
        consumer.acknowledge(message)
        found.append(message.data().decode())
    say.line("one at a time", found)


def remembered(say: Transcript) -> None:
    say.section("what a subscription remembers")
    client, topic = say.client, say.topic("remember")
    consumer = client.subscribe(topic, "s", Type.Shared)
    producer = client.create_producer(topic)
    for i in range(10):
        producer.send(f"m{i}".encode())
    for message in receive(consumer, 10, ack=False):
        if int(message.data()[1:]) % 3:
            consumer.acknowledge(message)
    time.sleep(1.5)  # the client groups acknowledgements for 0.1 s
    consumer.close()
    consumer = client.subscribe(topic, "s", Type.Shared)
    say.line("the holes", sorted(texts(receive(consumer, 10, timeout_ms=4000))))
    say.line("nothing more", more(consumer))


def main() -> None:
    say = Transcript(__doc__)
    seeking(say)
    readers(say)
    last_ids(say)
    zero_queue(say)
    remembered(say)
    say.client.close()


if __name__ == "__main__":
    main()
