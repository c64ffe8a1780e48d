"""`make demo`, `python -m demo`: what it may be told, and whether all that it needs is here.

What it shows is in `showing`, which is loaded only then.  The exit code is 0 only if the proof holds.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from demo.needs import missing

SEED = 7
RATE = 1_500
SECONDS = 45
QUICK_SECONDS = 12
_CANNOT_RUN = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description="What `make demo` shows.")
    parser.add_argument("--rate", type=float, default=RATE, help=f"records a second ({RATE})")
    parser.add_argument("--seconds", type=float, help=f"how long the shop is open ({SECONDS})")
    parser.add_argument("--quick", action="store_true", help=f"it is open for {QUICK_SECONDS} s only")
    parser.add_argument("--seed", type=int, default=SEED, help=f"another seed, another morning ({SEED})")
    parser.add_argument("--brokers", type=int, default=1, help="a cluster of so many, with replicas (1)")
    parser.add_argument("--cores", type=int, default=min(4, os.cpu_count() or 1), help="for Spark")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave all data there, to look at")
    found = parser.parse_args(arguments)
    if found.seconds is None:
        found.seconds = QUICK_SECONDS if found.quick else SECONDS
    if found.rate <= 0 or found.seconds <= 0 or found.brokers < 1 or found.cores < 1:
        parser.error("--rate, --seconds, --brokers and --cores must be more than 0")
    if found.keep is not None and found.keep.exists():
        parser.error(f"{found.keep} is there already")
    return found


def main(arguments: list[str]) -> int:
    chosen = options(arguments)
    lacking = missing(chosen.brokers)
    if lacking:
        print("the demo cannot run here:", *lacking, sep="\n  ", file=sys.stderr)
        return _CANNOT_RUN
    from demo.showing import show

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)
    records = round(chosen.rate * chosen.seconds)
    try:
        return 0 if show(records, chosen.rate, chosen.seed, chosen.brokers, chosen.cores, chosen.keep) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _unwind(number: int, frame: object) -> None:
    """Stops all that was started and removes all that was made, once, as an error would."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
