"""A cursor with a million ack holes: what an ack costs, how large it is, how long its flush takes.

    python bench/micro/cursor.py [HOLES]

Wanted are a flat cost of an ack, a flush below 50 ms and less than 50 MB resident.  The flush goes
through the real coordinators and logs, in a temporary folder.
"""

import asyncio
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from anabranch.subscriptions.cursor import Cursor
from tests.support.kept import Kept

SAMPLE = 20_000


def ns_an_ack(cursor: Cursor, offsets: list[int]) -> float:
    started = time.perf_counter_ns()
    for offset in offsets:
        cursor.ack(offset, offset + 1)
    return (time.perf_counter_ns() - started) / len(offsets)


def resident_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def acks(holes: int) -> None:
    """Of every second message in random order, ahead of all others; then of the first that are missing."""
    for count in (0, holes):
        cursor = with_holes(count)
        base = 2 * holes + 10
        ahead = [base + 2 * i for i in range(SAMPLE)]
        random.Random(1).shuffle(ahead)
        cost = ns_an_ack(cursor, ahead)
        print(f"{f'{count:,} holes':>16}: ack ahead {cost:.0f} ns")
    missing = [cursor.mark_delete + 2 * i for i in range(SAMPLE)]
    print(f"{'':>16}  ack at the mark {ns_an_ack(cursor, missing):.0f} ns")
    print(f"{'in order':>16}: ack {ns_an_ack(Cursor(0), list(range(SAMPLE))):.0f} ns")


def with_holes(holes: int) -> Cursor:
    cursor = Cursor(0)
    for offset in range(1, 2 * holes, 2):
        cursor.ack(offset, offset + 1)
    return cursor


async def flush(folder: Path, holes: int, stride: int) -> None:
    kept = Kept(folder)
    kept.topic("orders", 10)
    kept.ends["orders"] = stride * holes + 1
    durable = await kept.create("s", at=0)
    for offset in range(1, stride * holes, stride):
        durable.cursor.ack(offset, offset + 1)
    started = time.perf_counter()
    await kept.positions.save(durable)
    whole = (time.perf_counter() - started) * 1000
    durable.cursor.ack(3, 4)
    durable.cursor.ack(0, 1)
    started = time.perf_counter()
    await kept.positions.save(durable)
    again = (time.perf_counter() - started) * 1000
    print(
        f"{'flush':>16}: {holes:,} holes, one in {stride}: {len(durable.kept):,} chunks, "
        f"all of them {whole:.1f} ms, one that changed {again:.2f} ms"
    )
    kept.kill()


def main() -> None:
    holes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    before = resident_kb()
    cursor = with_holes(holes)
    print(f"{'memory':>16}: {resident_kb() - before:,} KB more for {cursor.acked_ahead():,} acked ahead")
    acks(holes)
    for stride in (2, 20, 200):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(flush(Path(folder), holes, stride))


if __name__ == "__main__":
    main()
