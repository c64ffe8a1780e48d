"""Requests in flight: what several on one connection are worth when acknowledgements take their time.

    python bench/path/in_flight.py [--delay-ms 2] [--seconds 2] [--rounds 5]

Produce (acks=all) and OffsetCommit, with 1 and with 5 requests in flight, in turn; the ratio of the rates is
the median of the rounds.  Answers must come in the order of the requests.  With --delay-ms 0 nothing is held
back: what a request costs the broker when there is nothing to wait for, acks=1 and acks=all.
"""

import argparse
import io
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "path"), str(ROOT / "bench" / "anchors")]

from kio.index import load_request_schema  # noqa: E402
from kio.serial import entity_writer  # noqa: E402
from late_acks import wrapper  # noqa: E402
from process import cpu_s  # noqa: E402

from tests.compat.clients.raw import CREATE_TOPICS, PRODUCE, Connection, build  # noqa: E402
from tests.support.broker import BrokerProcess  # noqa: E402
from tests.support.logs import records  # noqa: E402

OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
_CORRELATION = struct.Struct(">i")
_CORRELATION_AT = 8  # behind the frame's length, API and version


def frame(key: int, version: int, values: dict[str, Any]) -> bytearray:
    schema = load_request_schema(key, version)
    header = {"request_api_key": key, "request_api_version": version, "client_id": "bench"}
    out = io.BytesIO()
    entity_writer(schema.__header_schema__)(out, build(schema.__header_schema__, header))
    entity_writer(schema)(out, build(schema, values))
    body = out.getvalue()
    return bytearray(_CORRELATION.pack(len(body)) + body)


def requests(acks: int) -> dict[str, bytearray]:
    part = {"index": 0, "records": bytes(records("x" * 100))}
    topic = {"name": "in-flight", "partition_data": [part]}
    offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    return {
        "produce": frame(PRODUCE, 9, {"acks": acks, "timeout": 30_000, "topic_data": [topic]}),
        "commit": frame(
            OFFSET_COMMIT, 8, commit | {"topics": [{"name": "in-flight", "partitions": [offset]}]}
        ),
    }


def rate(bootstrap: str, request: bytearray, in_flight: int, seconds: float) -> float:
    """Requests answered in a second, with so many unanswered at any time."""
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as link, link.makefile("rb") as answers:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        unanswered: deque[int] = deque()
        sent = answered = 0

        def send() -> None:
            nonlocal sent
            _CORRELATION.pack_into(request, _CORRELATION_AT, sent)
            link.sendall(request)
            unanswered.append(sent)
            sent += 1

        for _ in range(in_flight):
            send()
        started = time.monotonic()
        while unanswered:
            size, correlation = struct.unpack(">ii", answers.read(8))
            answers.read(size - 4)
            if correlation != unanswered.popleft():
                raise RuntimeError(f"answer {correlation} came out of order")
            answered += 1
            if time.monotonic() - started < seconds:
                send()
        return answered / (time.monotonic() - started)


def prepare(bootstrap: str) -> None:
    with Connection(bootstrap) as broker:
        topic = {"name": "in-flight", "num_partitions": 1, "replication_factor": 1}
        broker.call(CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000})
        broker.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    for request in requests(-1).values():
        rate(bootstrap, request, 1, 0.2)


def overlap(broker: BrokerProcess, args: argparse.Namespace) -> None:
    for name, request in requests(-1).items():
        ones: list[float] = []
        ratios: list[float] = []
        for _ in range(args.rounds):
            ones.append(rate(broker.bootstrap, request, 1, args.seconds))
            ratios.append(rate(broker.bootstrap, request, 5, args.seconds) / ones[-1])
        print(
            f"{name:8} 1 in flight {statistics.median(ones):7.0f}/s, 5 in flight "
            f"{statistics.median(ratios):.2f} times that ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def cost(broker: BrokerProcess, args: argparse.Namespace) -> None:
    kinds = {"acks=1": requests(1)["produce"], "acks=all": requests(-1)["produce"]}
    kinds["commit"] = requests(-1)["commit"]
    for in_flight in (1, 5):
        for name, request in kinds.items():
            costs: list[float] = []
            for _ in range(args.rounds):
                before = cpu_s(broker.pid)
                started = time.monotonic()
                per_second = rate(broker.bootstrap, request, in_flight, args.seconds)
                count = per_second * (time.monotonic() - started)
                costs.append((cpu_s(broker.pid) - before) / count * 1e6)
            print(
                f"{name:8} {in_flight} in flight: {min(costs):6.1f} us of the broker's CPU a request "
                f"(median {statistics.median(costs):.1f})",
                flush=True,
            )


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--delay-ms", type=float, default=2.0, help="of acknowledgements")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder), wrapper=wrapper(args.delay_ms) if args.delay_ms else ()) as broker,
    ):
        prepare(broker.bootstrap)
        (overlap if args.delay_ms else cost)(broker, args)


if __name__ == "__main__":
    main()
