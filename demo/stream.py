"""What `make demo` shows: a broker, and a stream that real clients send through it and read back live.

    confluent-kafka  --->  anabranch  --->  kafka-python
      (librdkafka)         3 partitions --->  aiokafka

First a trickle, slow enough to watch and to time each message; then a flood, as fast as the clients go.
Both readers must end up with every message, in order within its partition.  The broker is a process of
its own in a temporary folder, on a free port, and is stopped as an operator would stop it.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

TOPIC = "river"
PARTITIONS = 3
TRICKLE = 900
TRICKLE_PER_SECOND = 300
FLOOD = 60_000
TOTAL = TRICKLE + FLOOD
START_SECONDS = 15
PATIENCE_SECONDS = 45
SHOWN = 6
QUIET = {"log.connection.close": False}  # the broker is stopped before its clients are
THINGS = ("a leaf", "a twig", "a feather", "a cork", "a paper boat", "a bottle with a letter")


class Reader:
    """What one consumer has seen.  Order is checked as it goes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.disorder = 0
        self.latest: deque[str] = deque(maxlen=SHOWN)
        self.delays_ms: list[float] = []
        self._next_offset = [0] * PARTITIONS
        self._last_number = [-1] * PARTITIONS

    @property
    def done(self) -> bool:
        return self.count >= TOTAL

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        message = json.loads(value)
        if offset != self._next_offset[partition] or message["n"] <= self._last_number[partition]:
            self.disorder += 1
        self._next_offset[partition] = offset + 1
        self._last_number[partition] = message["n"]
        self.count += 1
        if message["n"] < TRICKLE:
            self.delays_ms.append((time.time() - message["at"]) * 1000)
        self.latest.append(f"{partition}:{offset:<6} {message['what']}")

    def median_delay_ms(self) -> float:
        ordered = sorted(self.delays_ms)
        return ordered[len(ordered) // 2] if ordered else 0.0


class Stream:
    """The three clients, each in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.sent = 0
        self.acknowledged = 0
        self.failed: list[str] = []
        self.readers = [Reader("kafka-python"), Reader("aiokafka")]
        self.flood_started = 0.0
        self.flood_seconds = 0.0
        self.deadline = time.monotonic() + PATIENCE_SECONDS

    @property
    def done(self) -> bool:
        return all(reader.done for reader in self.readers) or time.monotonic() > self.deadline

    def run(self) -> list[threading.Thread]:
        tasks = [self._produce, self._read_with_kafka_python, lambda: asyncio.run(self._read_with_aiokafka())]
        threads = [threading.Thread(target=self._guarded, args=(task,), daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        return threads

    def _guarded(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001  shown at the end, and the demo fails
            self.failed.append(f"{type(error).__name__}: {error}")
            self.deadline = 0.0

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "compression.type": "lz4", "linger.ms": 2, **QUIET}
        )
        started = time.monotonic()
        for number in range(TOTAL):
            if number < TRICKLE:
                time.sleep(max(0.0, started + number / TRICKLE_PER_SECOND - time.monotonic()))
            elif number == TRICKLE:
                producer.flush(10)
                self.flood_started = time.monotonic()
            what = THINGS[number % len(THINGS)]
            value = json.dumps({"n": number, "at": time.time(), "what": what})
            while True:
                try:
                    producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            self.sent += 1
            producer.poll(0)
        producer.flush(20)
        self.flood_seconds = time.monotonic() - self.flood_started

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))

    def _read_with_kafka_python(self) -> None:
        reader = self.readers[0]
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        consumer.assign([KafkaPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        while not reader.done and not self.done:
            for messages in consumer.poll(timeout_ms=200).values():
                for message in messages:
                    reader.saw(message.partition, message.offset, message.value)
        consumer.close()

    async def _read_with_aiokafka(self) -> None:
        reader = self.readers[1]
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        consumer.assign([AioPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        await consumer.start()
        try:
            while not reader.done and not self.done:
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    for message in messages:
                        reader.saw(message.partition, message.offset, message.value)
        finally:
            await consumer.stop()


@contextmanager
def broker(folder: Path, console: Console) -> Iterator[str]:
    """A broker in `folder`, its address, and a clean stop at the end."""
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "anabranch.cli.main", "standalone", "--data", str(folder / "data")]
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, "--kafka-port", "0", "--ready-file", str(ready)], stdout=subprocess.DEVNULL
    )
    try:
        while not ready.exists():
            if process.poll() is not None or time.monotonic() - started > START_SECONDS:
                raise SystemExit("the broker did not start; its reason is above")
            time.sleep(0.01)
        address = json.loads(ready.read_text())["kafka"]
        seconds = time.monotonic() - started
        console.print(f"[green]✓[/] broker at [bold]{address}[/], from nothing to serving in {seconds:.2f} s")
        yield address
        memory = _memory_mb(process.pid)
        console.print(f"[green]✓[/] broker memory after all that: {memory:.0f} MB" if memory else "")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SystemExit("the broker did not stop when told to") from None
    if code != 0:
        raise SystemExit(f"the broker stopped with exit code {code}")
    console.print("[green]✓[/] broker stopped cleanly")


def _memory_mb(pid: int) -> float | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024


def picture(stream: Stream) -> Group:
    table = Table(box=None, padding=(0, 2))
    table.add_column("client", no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=30)
    rows = [("confluent-kafka  →", stream.acknowledged)]
    rows += [(f"→  {reader.name}", reader.count) for reader in stream.readers]
    for name, count in rows:
        table.add_row(name, f"{count:,}", "█" * (30 * count // TOTAL) or "▏")
    phase = "a flood" if stream.flood_started else "a trickle, to watch"
    flowing = [Text(f"  {line}", style="cyan") for line in stream.readers[0].latest]
    return Group(Text(f"{TOPIC}: {PARTITIONS} partitions, {phase}"), table, *flowing)


def watch(stream: Stream, console: Console) -> None:
    """Show the stream until both readers have everything."""
    if console.is_terminal:
        with Live(picture(stream), console=console, refresh_per_second=12) as live:
            while not stream.done:
                time.sleep(0.08)
                live.update(picture(stream))
        return
    while not stream.done:
        seen = ", ".join(f"{reader.name} {reader.count:,}" for reader in stream.readers)
        latest = stream.readers[0].latest
        console.print(f"  confluent-kafka {stream.acknowledged:,} -> {seen}  {latest[-1] if latest else ''}")
        time.sleep(1)


def verdict(stream: Stream, console: Console) -> bool:
    """Say what came of it.  True if every message was sent once and read twice, in order."""
    good = not stream.failed and stream.acknowledged == TOTAL
    for reader in stream.readers:
        whole = reader.count == TOTAL and reader.disorder == 0
        good = good and whole
        mark = "[green]✓[/]" if whole else "[red]✗[/]"
        console.print(
            f"{mark} {reader.name}: {reader.count:,} of {TOTAL:,} messages, {reader.disorder} out of order; "
            f"median {reader.median_delay_ms():.1f} ms from send to read in the trickle"
        )
    if stream.flood_seconds:
        console.print(
            f"[green]✓[/] flood: {FLOOD / stream.flood_seconds:,.0f} messages/s while both were reading"
        )
    for failure in stream.failed[:3]:
        console.print(f"[red]✗[/] {failure}")
    return good


def create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(10)


def main() -> int:
    console = Console(highlight=False, soft_wrap=True)
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-demo-") as folder,
        broker(Path(folder), console) as address,
    ):
        create_topic(address)
        stream = Stream(address)
        threads = stream.run()
        watch(stream, console)
        for thread in threads:
            thread.join(10)
        good = verdict(stream, console)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
