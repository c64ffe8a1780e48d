"""Pulsar's Java client, its admin client and its Go client: the same program on Apache Pulsar and on ours.

    python bench/anchors/pulsar_flows.py java     what pulsar-admin is made of, and the Java client
    python bench/anchors/pulsar_flows.py go       the Go client, from the Go proxy
    ... --transactions                            the same clients, in transactions
    ... --compaction                              Java: compacted reading, table views, policies around them

Each prints what any broker must repeat; the words must be the same.  (pulsar-admin itself comes in Pulsar's
release alone, not from Maven; every call of it goes through the admin client that is used here.)
"""

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from run_pulsar import Pulsar
from servers import ANCHORS, Ours

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 400.0
FLOWS, TRANSACTIONS, COMPACTION = "flows", "transactions", "compaction"

Command = Callable[[str, str, str], list[str]]
"""The words of a program, from where its broker is, where that is administered, and the run's prefix."""


def java(folder: Path, part: str) -> Command:
    libraries = ANCHORS / "pulsar" / "lib"
    quiet = f"-Dlog4j.configurationFile={HERE / 'pulsar_java' / 'log4j2.xml'}"
    program = str(HERE / "pulsar_java" / f"Pulsar{part.capitalize()}.java")

    def command(service: str, admin: str, prefix: str) -> list[str]:
        return ["java", "-Xmx512m", quiet, "-cp", f"{libraries}/*", program, service, admin, prefix]

    return command


def go(folder: Path, part: str) -> Command:
    if part == COMPACTION:
        sys.exit("there is no program in Go for that")
    if shutil.which("go") is None:
        sys.exit("this needs Go 1.24 or newer; there is no 'go' on the PATH")
    source = folder / "source"
    shutil.copytree(HERE / "pulsar_go", source)
    program = folder / "pulsar-go"
    environment = os.environ | {"GOFLAGS": "-mod=mod"}
    subprocess.run(["go", "build", "-o", program, "."], cwd=source, check=True, env=environment)
    more = [part] if part == TRANSACTIONS else []
    return lambda service, admin, prefix: [str(program), service, prefix, *more]


def transcript(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    lines = done.stdout.splitlines()
    return lines if done.returncode == 0 else [*lines, f"failed: {done.stderr[-600:]}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("language", choices=("java", "go"))
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--transactions", dest="part", action="store_const", const=TRANSACTIONS, help="what is done in those"
    )
    choice.add_argument(
        "--compaction", dest="part", action="store_const", const=COMPACTION, help="compacted topics"
    )
    parser.set_defaults(part=FLOWS)
    parser.add_argument("--show", action="store_true", help="print the transcript as well")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "ours").mkdir()
        command = {"java": java, "go": go}[args.language](folder, args.part)
        settings = {"transactionCoordinatorEnabled": "true"} if args.part == TRANSACTIONS else {}
        prefix = f"{uuid.uuid4().hex[:8]}-"
        pulsar = Pulsar()
        pulsar.start(settings)
        try:
            theirs = transcript(command(pulsar.pulsar, pulsar.admin, prefix))
        finally:
            pulsar.stop()
        with Ours(folder / "ours", settings) as ours:
            mine = transcript(command(ours.pulsar, ours.admin, prefix))
    if args.show:
        print("\n".join(theirs))
    difference = list(difflib.unified_diff(theirs, mine, "Apache Pulsar", "ours", lineterm="", n=1))
    if difference or any(line.startswith("failed") for line in theirs):
        sys.exit("\n".join(difference))
    print(f"all the same: {len(theirs)} lines")


if __name__ == "__main__":
    main()
