"""A Kafka Streams word count with exactly_once_v2 on our broker: every word counted once, whoever is killed.

    python bench/anchors/word_count.py [--lines 6000] [--brokers 3]

Lines of seeded words come in at a steady rate.  A third of the way the application is killed with -9 and
started again; at two thirds the broker is, or, of three, the one that coordinates the application's group,
while the others go on.  Each occurrence of a word gives a record with the count so far,
so a reader of committed records must see, for every word, 1, 2, 3 ... up to how often it was sent: a gap is a
lost record, a repetition is one that was counted or shown twice.

Then the application is asked for Streams' own group protocol (KIP-1071), which we do not offer: it must end
with an error at once, not hang.

The Java is streams/WordCount.java; its jars are fetched once (Maven) beside the broker's.
"""

import argparse
import collections
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as ck
from clusters import OurCluster, wait_for
from confluent_kafka.admin import AdminClient, NewTopic
from failover import GROUP, coordinated, is_at_rest
from servers import ANCHORS, JARS, KAFKA_VERSION, Ours

HERE = Path(__file__).resolve().parent / "streams"
STREAMS_JARS = ANCHORS / "kafka" / f"streams-{KAFKA_VERSION}"
CLASS_PATH = f"{STREAMS_JARS}/*:{JARS}/*"
WORDS = ("river", "stream", "delta", "bank", "meander", "oxbow", "ford", "weir", "spring", "mouth", "island")
PARTITIONS = 3
LINES_A_SECOND = 400.0
SETTLING_TIMEOUT_S = 90.0
REFUSAL_TIMEOUT_S = 45.0
VICTIM = 2
"""The broker that is killed, of three."""
SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "statestore.cache.max.bytes": "0",  # or only the last count of a commit interval is shown
    "num.stream.threads": "2",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1000",
    "consumer.auto.offset.reset": "earliest",
}


class WrongCount(Exception):
    """The output is not what exactly once gives."""


def fetch_jars() -> None:
    if not any(STREAMS_JARS.glob(f"kafka-streams-{KAFKA_VERSION}.jar")):
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        told = [f"-Dkafka.version={KAFKA_VERSION}", "-DincludeScope=runtime"]
        subprocess.run([*command, *told, f"-DoutputDirectory={STREAMS_JARS}"], check=True, timeout=600)


def compile_java(folder: Path) -> Path:
    classes = folder / "classes"
    command = ["javac", "-cp", CLASS_PATH, "-d", str(classes), str(HERE / "WordCount.java")]
    subprocess.run(command, check=True, timeout=120)
    return classes


class Application:
    def __init__(self, bootstrap: str, folder: Path, **settings: str) -> None:
        told = SETTINGS | {"bootstrap.servers": bootstrap, "state.dir": str(folder / "state")}
        told |= {name.replace("_", "."): value for name, value in settings.items()}
        self._properties = [f"{name}={value}" for name, value in told.items()]
        self._classes = compile_java(folder)
        self._log = folder / "application.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=ERROR"]
        command += ["-cp", f"{self._classes}:{CLASS_PATH}", "WordCount", *self._properties]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def ended(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def printed(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class Lines:
    """What is sent, a line at a time, and how often each word was."""

    def __init__(self, bootstrap: str) -> None:
        self._chance = random.Random(11)
        self.sent = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self._producer = ck.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self.refused: list[str] = []

    def send(self, count: int) -> None:
        for number in range(count):
            words = self._chance.choices(WORDS, k=self._chance.randrange(1, 6))
            self.counts.update(words)
            self.sent += 1
            self._producer.produce(
                "lines", " ".join(words), key=str(number), on_delivery=lambda error, _: self._delivered(error)
            )
            self._producer.poll(0)
            time.sleep(1 / LINES_A_SECOND)

    def _delivered(self, error: ck.KafkaError | None) -> None:
        if error is not None:
            self.refused.append(str(error))

    def flush(self) -> None:
        left = self._producer.flush(60)
        if left or self.refused:
            raise WrongCount(f"{left} lines not acknowledged, refused: {self.refused[:3]}")


class Counts:
    """The committed records of `counts`, as they come: the counts of each word in order."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[str, list[int]] = collections.defaultdict(list)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = ck.Consumer(settings)
        self._consumer.assign([ck.TopicPartition("counts", index, 0) for index in range(PARTITIONS)])

    def read_until(self, total: int, application: Application) -> None:
        deadline = time.monotonic() + SETTLING_TIMEOUT_S
        while sum(map(len, self.seen.values())) < total:
            if time.monotonic() > deadline:
                raise WrongCount(
                    f"{sum(map(len, self.seen.values()))} of {total} after {SETTLING_TIMEOUT_S} s"
                )
            if application.ended() is not None:
                raise WrongCount(f"the application ended:\n{application.printed()[-3000:]}")
            self._take(self._consumer.consume(1000, 0.5))

    def read_rest(self) -> None:
        """What comes although everything has come: it should be nothing."""
        self._take(self._consumer.consume(1000, 3.0))
        self._consumer.close()

    def _take(self, messages: list[ck.Message]) -> None:
        for message in messages:
            if message.error() is None:
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                self.seen[key.decode()].append(int.from_bytes(value, "big"))


def check(sent: collections.Counter[str], seen: dict[str, list[int]]) -> None:
    for word, count in sent.items():
        if seen[word] != list(range(1, count + 1)):
            wrong = [(i, n) for i, n in enumerate(seen[word], 1) if i != n][:5]
            raise WrongCount(f"{word}: {count} sent, {len(seen[word])} counted, first wrong ones {wrong}")
    if set(seen) != set(sent):
        raise WrongCount(f"words that nobody sent: {set(seen) - set(sent)}")


class Served(NamedTuple):
    """Where one broker serves or three do, and what becomes of one of them."""

    bootstrap: str
    application_id: str
    kill: Callable[[], object]
    start: Callable[[], object]


@contextmanager
def served(folder: Path, brokers: int) -> Iterator[Served]:
    if brokers == 1:
        with Ours(folder) as broker:
            make_topics(broker.bootstrap)
            yield Served(broker.bootstrap, "words", broker.kill, broker.start)
        return
    with OurCluster(folder) as cluster:
        wait_for(cluster.bootstrap, is_at_rest)
        make_topics(cluster.bootstrap)
        name = coordinated(cluster, GROUP, VICTIM)
        yield Served(cluster.bootstrap, name, lambda: cluster.kill(VICTIM), lambda: cluster.restart(VICTIM))


def make_topics(bootstrap: str) -> None:
    """With as many replicas as is usual there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(t, PARTITIONS) for t in ("lines", "counts")]).values():
        future.result(timeout=20)


def count_words(folder: Path, lines: int, brokers: int) -> None:
    with served(folder, brokers) as broker:
        application = Application(broker.bootstrap, folder, application_id=broker.application_id)
        source, counts = Lines(broker.bootstrap), Counts(broker.bootstrap)
        application.start()
        try:
            source.send(lines // 3)
            counts.read_until(sum(source.counts.values()) // 3, application)
            source.send(lines // 6)
            application.kill()
            print("  the application is killed and started again", flush=True)
            application.start()
            source.send(lines // 6)
            counts.read_until(sum(source.counts.values()) - 100, application)
            source.send(lines // 6)
            broker.kill()
            if brokers > 1:
                source.send(lines // 6)
            print("  the broker is killed and started again", flush=True)
            broker.start()
            source.send(lines - source.sent)
            source.flush()
            counts.read_until(sum(source.counts.values()), application)
            counts.read_rest()
            application.stop()
        finally:
            application.kill()
        check(source.counts, counts.seen)
        total = sum(source.counts.values())
        print(f"  {lines} lines, {total} words, each counted once", flush=True)


def refuse_streams_protocol(folder: Path) -> None:
    with Ours(folder) as broker:
        make_topics(broker.bootstrap)
        application = Application(broker.bootstrap, folder, application_id="words", group_protocol="streams")
        application.start()
        code = application.wait(REFUSAL_TIMEOUT_S)
        application.kill()
        if code != 2 or "UnsupportedVersionException" not in application.printed():
            raise WrongCount(f"group.protocol=streams: code {code}\n{application.printed()[-3000:]}")
    print("  group.protocol=streams: refused as a version that we do not have", flush=True)


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--lines", type=int, default=6000)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    args = parser.parse_args()
    fetch_jars()
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in ("count", "refuse")]
        for folder in folders:
            folder.mkdir()
        try:
            count_words(folders[0], args.lines, args.brokers)
            if args.brokers == 1:
                refuse_streams_protocol(folders[1])
        except WrongCount as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
