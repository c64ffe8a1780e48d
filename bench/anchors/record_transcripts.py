"""Record the golden transcripts of tests/compat from a running Apache Kafka.

    python bench/anchors/record_transcripts.py --bootstrap 127.0.0.1:19092 [--only confluent]

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


def transcript(script: Path, bootstrap: str, settle_s: float) -> str:
    command = [sys.executable, str(script), "--bootstrap", bootstrap, "--prefix", f"{uuid.uuid4().hex[:8]}-"]
    command += ["--settle-s", str(settle_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"{script.name} failed after\n{done.stdout[-500:]}\n{done.stderr[-3000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:19092")
    parser.add_argument("--only", default="", help="scripts whose name has this")
    parser.add_argument("--settle-s", type=float, default=0.3)
    args = parser.parse_args()
    for script in sorted((COMPAT / "clients").glob("*_*.py")):
        if args.only not in script.name:
            continue
        first, second = (transcript(script, args.bootstrap, args.settle_s) for _ in range(2))
        if first != second:
            print(
                "\n".join(
                    difflib.unified_diff(
                        first.splitlines(), second.splitlines(), "first", "second", lineterm=""
                    )
                )
            )
            sys.exit(f"{script.name}: two runs on the same broker differ")
        golden = COMPAT / "transcripts" / f"{script.stem}.txt"
        golden.write_text(first)
        print(f"{golden.name}: {len(first.splitlines())} lines")


if __name__ == "__main__":
    main()
