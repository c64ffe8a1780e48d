"""Share consumers as processes that read a topic to its end together, and how long they take.

    took_s = drain(bootstrap, topic, group, consumers=4, records=400_000)

Each consumer accepts what it has read with its next poll, as librdkafka does unless told otherwise.  The
clock runs from the first record that anybody gets to the last.
"""

import selectors
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka as ck

PATIENCE_S = 120.0


def drain(bootstrap: str, topic: str, group: str, consumers: int, records: int) -> float:
    command = [sys.executable, str(Path(__file__)), bootstrap, topic, group]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(consumers)
    ]
    try:
        for process in processes:
            _line(process)
        return _until_all_are_read(processes, records)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _until_all_are_read(processes: "list[subprocess.Popen[str]]", records: int) -> float:
    """Every process is asked for what it has, which is at most what there was when it answers."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        told = []
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            count, first, last = _line(process).split()
            told.append((int(count), float(first), float(last)))
        if sum(count for count, _, _ in told) >= records:
            read = [(first, last) for count, first, last in told if count]
            return max(last for _, last in read) - min(first for first, _ in read)
        time.sleep(0.2)
    raise TimeoutError(f"{sum(count for count, _, _ in told)} of {records} records were read")


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a share consumer has ended")
    return line


def consume(bootstrap: str, topic: str, group: str) -> None:
    """Read until killed; a line that comes in is answered with how much, since when and until when."""
    consumer = ck.ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    print("ready", flush=True)
    asked = selectors.DefaultSelector()
    asked.register(sys.stdin, selectors.EVENT_READ)
    count, first, last = 0, 0.0, 0.0
    while True:
        got = len([message for message in consumer.poll(0.1) if message.error() is None])
        if got:
            last = time.monotonic()
            first = first or last
            count += got
        if asked.select(0):
            sys.stdin.readline()
            print(count, first, last, flush=True)


if __name__ == "__main__":
    consume(*sys.argv[1:])
