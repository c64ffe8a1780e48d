"""Record the golden transcripts of tests/compat from a running Apache Kafka, or a running Apache Pulsar.

    python bench/anchors/record_transcripts.py --bootstrap 127.0.0.1:19092 [--only confluent]
    python bench/anchors/record_transcripts.py --pulsar pulsar://127.0.0.1:16650 --admin http://127.0.0.1:18080

Kafka applies a change of metadata some milliseconds after it has answered, so the scripts pause after each
(`--settle-s`).  Every script runs twice; what differs between two runs on the same broker does not belong
into a transcript.
"""

import argparse
import difflib
import subprocess
import sys
import uuid
from pathlib import Path

COMPAT = Path(__file__).resolve().parents[2] / "tests" / "compat"
COMMON = "pulsar_transcript.py"  # what Pulsar's scripts share


def transcript(script: Path, told: list[str]) -> str:
    command = [sys.executable, str(script), *told, "--prefix", f"{uuid.uuid4().hex[:8]}-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"{script.name} failed after\n{done.stdout[-500:]}\n{done.stderr[-3000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:19092")
    parser.add_argument("--pulsar", help="record from this Pulsar instead")
    parser.add_argument("--admin", default="http://127.0.0.1:18080", help="where its REST API is")
    parser.add_argument("--only", default="", help="scripts whose name has this")
    parser.add_argument("--settle-s", type=float, default=0.3)
    args = parser.parse_args()
    if args.pulsar:
        scripts = sorted(set((COMPAT / "pulsar_clients").glob("*.py")) - {COMPAT / "pulsar_clients" / COMMON})
        told, kept = ["--service", args.pulsar, "--admin", args.admin], COMPAT / "pulsar_transcripts"
    else:
        scripts = sorted((COMPAT / "clients").glob("*_*.py"))
        told, kept = ["--bootstrap", args.bootstrap, "--settle-s", str(args.settle_s)], COMPAT / "transcripts"
    for script in scripts:
        if args.only not in script.name:
            continue
        first, second = (transcript(script, told) for _ in range(2))
        if first != second:
            print(
                "\n".join(
                    difflib.unified_diff(
                        first.splitlines(), second.splitlines(), "first", "second", lineterm=""
                    )
                )
            )
            sys.exit(f"{script.name}: two runs on the same broker differ")
        golden = kept / f"{script.stem}.txt"
        golden.write_text(first)
        print(f"{golden.name}: {len(first.splitlines())} lines")


if __name__ == "__main__":
    main()
