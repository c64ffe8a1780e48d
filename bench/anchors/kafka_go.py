"""franz-go, Kafka's client for Go, on three brokers of ours, one of which is killed with -9 in the middle and
started again: every record that was acknowledged is read once, and those of a key in their order.

    python bench/anchors/kafka_go.py [--records 15000]

The Go is kafka_go/main.go: an idempotent producer with `acks=all`, and a group of two beside it.  The broker
that is killed leads a third of the partitions and coordinates the group.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from clusters import OurCluster, wait_for
from failover import GROUP, coordinated, create, is_at_rest

SOURCE = Path(__file__).resolve().parent / "kafka_go"
TOPIC = "counted"
REPLICAS = [[2, 3, 1], [3, 1, 2], [1, 2, 3]]
VICTIM = 2
RECORDS_A_SECOND = 500
PATIENCE_S = 120.0


class Line(NamedTuple):
    """What the program says of a record."""

    partition: int
    offset: int
    key: str
    value: int


class Wrong(Exception):
    """Something was lost, came twice, or out of order."""


class Program:
    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self._out, self._errors = folder / "said.txt", folder / "errors.txt"
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [build(folder), *arguments], stdin=subprocess.PIPE, stdout=out, stderr=errors
            )

    def said(self, what: str) -> list[Line]:
        whole = self._out.read_text().rpartition("\n")[0]
        told = [line.split() for line in whole.splitlines() if line.startswith(what)]
        return [
            Line(int(partition), int(offset), key, int(value)) for _, partition, offset, key, value in told
        ]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline or self.process.poll() not in (None, 0):
                counts = {word: len(self.said(word)) for word in ("acked", "read")}
                raise Wrong(f"{what} does not end: {counts}\n{self._errors.read_text()[-2000:]}")
            time.sleep(0.25)


def build(folder: Path) -> Path:
    if shutil.which("go") is None:
        sys.exit("this needs Go 1.24 or newer; there is no 'go' on the PATH")
    program = folder / "kafka-go"
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True, env=os.environ)
    return program


def run(records: int) -> None:
    with tempfile.TemporaryDirectory() as temporary, OurCluster(Path(temporary)) as cluster:
        wait_for(cluster.bootstrap, is_at_rest)
        create(cluster.bootstrap, TOPIC, REPLICAS)
        group = coordinated(cluster, GROUP, VICTIM)
        told = [cluster.bootstrap, TOPIC, group, str(records), str(RECORDS_A_SECOND)]
        program = Program(Path(temporary), told)
        try:
            program.until(lambda: len(program.said("acked")) > records // 3, "the first third")
            cluster.kill(VICTIM)
            print(f"  broker {VICTIM} is killed", flush=True)
            program.until(lambda: len(program.said("acked")) > 2 * records // 3, "the second third")
            cluster.restart(VICTIM)
            print(f"  broker {VICTIM} is started again", flush=True)
            program.until(lambda: program.process.poll() == 0, "reading")
            check(program.said("acked"), program.said("read"), records)
            wait_for(cluster.bootstrap, is_at_rest)
        finally:
            program.process.kill()
            program.process.wait()
    print(f"  {records} records acknowledged, each read once, in order", flush=True)


def check(acked: list[Line], read: list[Line], records: int) -> None:
    if sorted(line.value for line in acked) != list(range(records)):
        raise Wrong(f"{len(acked)} acknowledged of {records}")
    again = [line for line, times in Counter(read).items() if times > 1]
    lost, made_up = set(acked) - set(read), set(read) - set(acked)
    if again or lost or made_up:
        raise Wrong(
            f"read: again {len(again)} {again[:3]}, lost {len(lost)} {sorted(lost)[:3]}, "
            f"never acknowledged {len(made_up)} {sorted(made_up)[:3]}"
        )
    by_key: dict[str, list[int]] = defaultdict(list)
    offsets: dict[int, list[int]] = defaultdict(list)
    for line in read:
        by_key[line.key].append(line.value)
        offsets[line.partition].append(line.offset)
    for key, values in by_key.items():
        if values != sorted(values):
            raise Wrong(f"{key}: out of order")
    for partition, found in offsets.items():
        if found != list(range(len(found))):
            raise Wrong(f"{TOPIC}-{partition}: the offsets are not 0 to {len(found) - 1} in order")


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--records", type=int, default=15_000)
    args = parser.parse_args()
    try:
        run(args.records)
    except Wrong as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
