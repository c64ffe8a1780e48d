"""A member of a share group, as a process: it takes records, writes down which, and says what became of them.

    share_members.py --bootstrap ADDRESS --topic T --group G --journal FILE [--explicit] [--work-ms N]

A line of the journal is a time, of the clock that all processes of the machine share, and what happened:

    got P OFFSET COUNT      for each record, with how often it was delivered
    settles P OFFSET KIND   before it tells the broker
    done P OFFSET KIND      the broker has it
    failed P ERROR          the broker has not
    left                    it was told to end (SIGTERM), and has left the group

Records whose value is `poison` are released, `bad` ones rejected, all others accepted.  Without --explicit
the client accepts all by itself.
"""

import argparse
import signal
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck

_KINDS = {b"poison": ck.AcknowledgeType.RELEASE, b"bad": ck.AcknowledgeType.REJECT}


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap", "--topic", "--group", "--journal"):
        parser.add_argument(option, required=True)
    parser.add_argument("--explicit", action="store_true")
    parser.add_argument("--work-ms", type=int, default=0)
    told = parser.parse_args()
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    mode = {"share.acknowledgement.mode": "explicit" if told.explicit else "implicit"}
    consumer = ck.ShareConsumer(
        {
            "bootstrap.servers": told.bootstrap,
            "group.id": told.group,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
            **mode,
        }
    )
    consumer.subscribe([told.topic])
    with Path(told.journal).open("w", buffering=1) as journal:

        def note(*words: object) -> None:
            journal.write(f"{time.monotonic():.6f} {' '.join(map(str, words))}\n")

        while not stops:
            take(consumer, note, told.work_ms / 1000, explicit=told.explicit)
        consumer.close()
        note("left")


def take(consumer: ck.ShareConsumer, note: Callable[..., None], work_s: float, *, explicit: bool) -> None:
    try:
        records = [record for record in consumer.poll(0.2) if record.error() is None]
    except ck.KafkaException as error:
        if not error.args[0].retriable():
            raise
        note("failed", -1, error)
        return
    for record in records:
        note("got", record.partition(), record.offset(), record.delivery_count())
    if not records:
        return
    time.sleep(work_s)
    kinds = {}
    for record in records:
        kind = (
            _KINDS.get(record.value(), ck.AcknowledgeType.ACCEPT) if explicit else ck.AcknowledgeType.ACCEPT
        )
        kinds[record.partition(), record.offset()] = kind.name
        note("settles", record.partition(), record.offset(), kind.name)
        if explicit:
            consumer.acknowledge(record, kind)
    try:
        outcomes = consumer.commit_sync(10)
    except ck.KafkaException as error:
        note("failed", -1, error)
        return
    for partition, error in outcomes.items():
        if error is not None:
            note("failed", partition.partition, error)
            continue
        for (index, offset), kind in kinds.items():
            if index == partition.partition:
                note("done", index, offset, kind)


if __name__ == "__main__":
    main()
