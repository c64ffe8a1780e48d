"""A producer that numbers its records and writes down what the broker acknowledged.

    counting_producer.py --bootstrap ADDRESS --topic T --partitions N --acks all [--idempotent] --ledger FILE

Record k of producer `--name` has the value "name k " and some padding.  A line "k partition offset" goes into
the ledger when, and only when, its acknowledgement has arrived (offset -1: acknowledged as a duplicate,
where is not known).  It goes on until SIGTERM, whatever happens to the broker; then it waits for
what is on its way and writes "end SENT ACKED FAILED".
"""

import argparse
import random
import signal
import time
from pathlib import Path

import confluent_kafka as ck

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Ledger:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self.acked = 0
        self.failed = 0

    def report(self, number: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.failed += 1
            self._file.write(f"# {number} {error.name()}\n")
            return
        self.acked += 1
        offset = message.offset()
        self._file.write(f"{number} {message.partition()} {-1 if offset is None else offset}\n")

    def end(self, sent: int) -> None:
        self._file.write(f"end {sent} {self.acked} {self.failed}\n")
        self._file.close()


def producer(args: argparse.Namespace) -> ck.Producer:
    return ck.Producer(
        {
            "bootstrap.servers": args.bootstrap,
            "acks": args.acks,
            "enable.idempotence": args.idempotent,
            "compression.type": args.compression,
            "linger.ms": 3,
            "message.timeout.ms": 300_000,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "socket.connection.setup.timeout.ms": 2000,
            "log_level": 0,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--acks", default="all")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--compression", default="none", choices=CODECS)
    parser.add_argument("--name", default="p")
    parser.add_argument("--rate", type=float, default=2000, help="records a second, at most")
    parser.add_argument("--padding", type=int, default=600, help="bytes of padding, at most")
    parser.add_argument("--ledger", type=Path, required=True)
    args = parser.parse_args()

    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    ledger, client, chance = Ledger(args.ledger), producer(args), random.Random(args.name)
    filler = chance.randbytes(args.padding).hex().encode()
    sent, started = 0, time.monotonic()
    while not stopping:
        ahead_s = sent / args.rate - (time.monotonic() - started)
        if ahead_s > 0:
            client.poll(min(ahead_s, 0.01))
            continue
        value = b"%s %d " % (args.name.encode(), sent) + filler[: chance.randrange(args.padding + 1)]
        try:
            client.produce(
                args.topic,
                value,
                partition=sent % args.partitions,
                on_delivery=lambda error, message, number=sent: ledger.report(number, error, message),
            )
            sent += 1
        except BufferError:
            client.poll(0.01)
    client.flush(120)
    ledger.end(sent)


if __name__ == "__main__":
    main()
