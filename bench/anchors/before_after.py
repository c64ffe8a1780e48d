"""An earlier commit and this tree side by side, into one JSON file: has a change slowed what was there?

    python bench/anchors/before_after.py COMMIT                   every row, 9 pairs
    python bench/anchors/before_after.py COMMIT --only "fetch"    rows whose name has this

The commit is checked out beside, and both brokers run on the same interpreter and libraries.  Run nothing
else meanwhile.  Ratios are this tree's / the commit's; rates are to stay within 3 %.
"""

import argparse
import compileall
import datetime
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pairs
import pulsar_rows
import run_pulsar
from matrix import AT_LEAST, FIGURES, Row
from run import machine, repeatable
from servers import ROOT, Ours

UNCHANGED = 0.97
KAFKA_ROWS = (
    Row("produce 1 KB", "produce", 300_000, {"--size": "1000"}),
    Row("produce 100 B", "produce", 1_000_000, {"--size": "100"}),
    Row("fetch 1 KB", "consume", 600_000, {"--size": "1000"}),
    Row("fetch 100 B", "consume", 4_000_000, {"--size": "100"}),
)
PULSAR_ROWS = (
    Row("Pulsar produce 1 KB", "produce", 200_000, {"--size": "1024"}),
    Row("Pulsar consume 1 KB", "consume", 200_000, {"--size": "1024"}),
)
Load = Callable[[Any, list[str]], dict[str, Any] | None]


class Tree(Ours):
    """A broker of the sources in `tree`."""

    def __init__(self, name: str, tree: Path, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder, wrapper=("env", f"PYTHONPATH={tree / 'src'}"))
        self.name = name


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", str(folder), commit], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True, capture_output=True)


def measure(
    row: Row, run: Load, sides: tuple[Tree, Tree], rounds: int, figures: Sequence[str], rate: str
) -> dict[str, Any]:
    before, after = sides
    load = row.load(1.0)
    if row.mode == "consume" and run is pairs.run_load:  # filled by the first run, read by all
        load += ["--topic", f"fetch-{time.time_ns()}"]
    elif run is pairs.run_load:
        load.append("--delete-after")
    for side in sides:
        run(side, load)
    runs = []
    for number in range(rounds):
        got = {side.name: run(side, load) for side in (sides if number % 2 == 0 else sides[::-1])}
        if all(got.values()):
            runs.append({name: result for name, result in got.items() if result is not None})
    targets = {rate: (AT_LEAST, UNCHANGED)}
    return {
        "name": row.name,
        "load": " ".join(row.load(1.0)),
        "pairs": len(runs),
        "failed_pairs": rounds - len(runs),
        "ratios": pairs.ratios(runs, before.name, after.name, targets, figures),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="what to compare with")
    parser.add_argument("--rounds", type=int, default=9, help="pairs a row")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    parser.add_argument("--add", type=Path, metavar="FILE", help="a result to put rows into")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    pairs.tool_is_there()
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report: dict[str, Any] = json.loads(args.add.read_text()) if args.add else {"rows": []}
    report |= {
        "at": at,
        "command": shlex.join(["python", "bench/anchors/before_after.py", *repeatable(sys.argv[1:])]),
        "machine": machine() | {"before": args.commit},
    }
    path = args.out or args.add or ROOT / "bench" / "results" / f"{at[:10]}-before-after.json"
    kinds = (
        (KAFKA_ROWS, pairs.run_load, FIGURES, "records_s"),
        (PULSAR_ROWS, run_pulsar.run_load, pulsar_rows.FIGURES, "records_per_s"),
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with checked_out(args.commit, folder / "tree") as tree:
            for sources in (tree, ROOT):
                compileall.compile_dir(sources / "src", quiet=2)
            for rows, run, figures, rate in kinds:
                for row in (row for row in rows if args.only in row.name):
                    # Empty brokers for each row: what one wrote is not in the way of the next.
                    place = folder / "data"
                    place.mkdir()
                    sides = Tree("before", tree, place / "before"), Tree("after", ROOT, place / "after")
                    with sides[0], sides[1]:
                        measured = measure(row, run, sides, args.rounds, figures, rate)
                    pairs.show(measured)
                    others = [one for one in report["rows"] if one["name"] != row.name]
                    report["rows"] = [*others, measured]
                    path.write_text(json.dumps(report, indent=1) + "\n")
                    shutil.rmtree(place)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
