"""Broker profile: where the time goes under a load.

    python bench/path/profile_broker.py "produce 100 B, linger 0" [--share 1] [--top 40] [--sort tottime]
    python bench/path/profile_broker.py "fetch 1 KB" --py-spy out.svg      (pip install py-spy)

Without --py-spy the broker runs under cProfile, which slows Python calls by some 2x and C calls hardly:
read it for the order of things, not for their size.  Start-up, and the filling of what is fetched, are in
the profile.
"""

import argparse
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import load  # noqa: E402

from tests.support.broker import BrokerProcess  # noqa: E402


def run_load(broker: BrokerProcess, chosen: load.Load, count: int) -> float:
    load.create(broker.bootstrap, "profiled")
    if chosen.run is load.fetch:
        load.produce(broker.bootstrap, "profiled", count, chosen.size)
    started = time.monotonic()
    chosen.run(broker.bootstrap, "profiled", count)
    return time.monotonic() - started


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    names = [each.name for each in load.LOADS]
    parser.add_argument("load", choices=names, metavar="LOAD", help=", ".join(names))
    parser.add_argument("--share", type=float, default=1.0, help="of the load's records")
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--sort", default="tottime", choices=["tottime", "cumtime", "ncalls"])
    parser.add_argument(
        "--py-spy", type=Path, metavar="FILE.svg", help="sample with py-spy into a flame graph"
    )
    args = parser.parse_args()
    chosen = next(each for each in load.LOADS if each.name == args.load)
    count = max(100, int(chosen.records * args.share))
    with tempfile.TemporaryDirectory() as temporary:
        stats = Path(temporary) / "profile"
        profiler = () if args.py_spy else (sys.executable, "-m", "cProfile", "-o", str(stats))
        with BrokerProcess(Path(temporary), wrapper=profiler) as broker:
            sampler = None
            if args.py_spy:
                command = ["py-spy", "record", "--native", "-o", str(args.py_spy), "--pid", str(broker.pid)]
                sampler = subprocess.Popen(command)
            took_s = run_load(broker, chosen, count)
            print(f"{chosen.name}: {count:,} records in {took_s:.2f} s ({count / took_s:,.0f}/s, profiled)")
            broker.stop()
            if sampler is not None:
                sampler.wait(30)
        if not args.py_spy:
            pstats.Stats(str(stats)).sort_stats(args.sort).print_stats(args.top)


if __name__ == "__main__":
    main()
