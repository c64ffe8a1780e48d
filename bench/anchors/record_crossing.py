"""Keeps what Java's and Go's producers write, byte for byte, for tests that read it in the other protocol.

    python bench/anchors/record_crossing.py [FILE]      tests/wire/golden/crossing.json unless told otherwise

The programs write to our broker, which stores what they send as it is; the batches are taken from its log.
"""

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from pulsar_flows import HERE, TIMEOUT_S, go
from servers import ANCHORS, Ours

from anabranch.records.batch import split_batches

OUT = HERE.parents[1] / "tests" / "wire" / "golden" / "crossing.json"


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=TIMEOUT_S)


def stored(folder: Path) -> dict[str, list[str]]:
    """The batches of every topic, by its name, in base64."""
    found = {}
    for log in sorted(folder.glob("topics/public/default/*/*.log")):
        batches = [base64.b64encode(batch).decode() for _, batch in split_batches(log.read_bytes())]
        found[log.parent.name.removesuffix("-0")] = batches
    return found


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    with tempfile.TemporaryDirectory() as temporary, Ours(Path(temporary)) as broker:
        quiet = f"-Dlog4j.configurationFile={HERE / 'pulsar_java' / 'log4j2.xml'}"
        libraries = f"{ANCHORS / 'pulsar' / 'lib'}/*"
        run(
            "java",
            quiet,
            "-cp",
            libraries,
            str(HERE / "pulsar_java/Crossing.java"),
            broker.pulsar,
            "java-pulsar-",
        )
        libraries = f"{ANCHORS / 'kafka' / 'libs-4.3.1'}/*"
        run("java", "-cp", libraries, str(HERE / "kafka_java/Crossing.java"), broker.bootstrap, "java-kafka-")
        run(*go(Path(temporary) / "go", False)(broker.pulsar, "", "go-pulsar-"), "crossing")
        kept = stored(broker.data)
    out.write_text(json.dumps({name: kept[name] for name in kept if "-" in name}, indent=1) + "\n")
    print(f"{len(kept)} topics in {out}")


if __name__ == "__main__":
    main()
