"""Apache Kafka's own tools read our files, and ours read Kafka's.

    python bench/anchors/dump_log_segments.py [--scale 1] [--keep FOLDER] [--skip-broker]

1. Our broker is filled with varied data (varied_data.py), killed and started once on the way, and stopped.
2. Kafka's DumpLogSegments goes through every .log (--deep-iteration), .index and .timeindex
   (--verify-index-only, --index-sanity-check) and .snapshot.  Any complaint fails; so does a count that is
   not what a client read.
3. A real Kafka broker is started on a copy of our folders, once trusting our indexes (clean shutdown) and
   once recovering from the log (unclean), and must give a client the same records.
4. Kafka's own folders, filled with the same data, go through `anabranch log dump`, and our broker's through
   it too.

Needs Java 17 and the shared scripts (see servers.py).  Exit code 0 only if all agree.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import varied_data
from servers import JARS, Kafka, Ours

OUR_SETTINGS = {"log.cleaner.backoff.ms": "500"}
COMPLAINT = re.compile(
    r"isvalid: false|mismatch|out of order|corrupt|exception|could not|failed|error|invalid", re.I
)
# The tool of 4.3.1 says "-1 is followed by N" of every segment that does not begin at 0, Kafka's own
# included.
GAP = re.compile(r"^\s*\d+ is followed by \d+")


def partition_folders(data: Path) -> dict[str, Path]:
    """The folder of partition 0 of each topic, wherever below `data` it is."""
    found = {path.name[:-2]: path for path in data.rglob("*-0") if path.is_dir()}
    return {topic: found[topic] for topic in varied_data.TOPICS if topic in found}


class Disagreement(Exception):
    """Two implementations do not say the same about the same bytes."""


def dump(files: Sequence[Path], *options: str) -> dict[Path, list[str]]:
    """What Kafka's tool prints about each file."""
    command = ["java", "-Xmx512m", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DumpLogSegments", *options]
    command += ["--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    lines = done.stdout.splitlines()
    complaints = [line for line in lines + done.stderr.splitlines() if COMPLAINT.search(line)]
    if done.returncode or complaints:
        shown = "\n".join(complaints[:10] or done.stderr.splitlines()[-10:])
        raise Disagreement(f"DumpLogSegments {' '.join(options)}:\n{shown}")
    about: dict[Path, list[str]] = {file: [] for file in files}
    current: list[str] = []
    for line in lines:
        if line.startswith("Dumping "):
            current = about[Path(line.removeprefix("Dumping "))]
        else:
            current.append(line)
    return about


def check_with_kafkas_tool(data: Path, counts: dict[str, int]) -> None:
    folders = partition_folders(data)
    missing = set(varied_data.TOPICS) - set(folders)
    if missing:
        raise Disagreement(f"no folder of {sorted(missing)} below {data}")

    def files(ending: str) -> list[Path]:
        return [file for folder in folders.values() for file in sorted(folder.glob(f"*.{ending}"))]

    logs = dump(files("log"), "--deep-iteration")
    dump(files("index") + files("timeindex"), "--verify-index-only")
    for file, lines in dump(files("index") + files("timeindex"), "--index-sanity-check").items():
        if not any("passed sanity check" in line or "is empty" in line for line in lines):
            raise Disagreement(f"{file}: {lines}")
    snapshots = dump(files("snapshot"))
    for topic, folder in folders.items():
        segments = sorted(folder.glob("*.log"))
        for ending in ("index", "timeindex"):
            if {file.stem for file in folder.glob(f"*.{ending}")} != {file.stem for file in segments}:
                raise Disagreement(f"{topic}: not one .{ending} a segment")
        lines = [line for file in segments for line in logs[file]]
        check_lines(topic, lines, counts[topic])
        producers = [
            x for file in folder.glob("*.snapshot") for x in snapshots[file] if x.startswith("producerId")
        ]
        if topic == "idempotent" and len(segments) > 1 and not producers:
            raise Disagreement("idempotent: several segments and no producer in a snapshot")
        print(f"  {topic:14} {len(segments):3} segments {counts[topic]:6} records: accepted")


def check_lines(topic: str, lines: list[str], expected: int) -> None:
    gaps = [line for line in lines if GAP.match(line)]
    if gaps and topic != "compacted":
        raise Disagreement(f"{topic}: gaps: {gaps[:3]}")
    records = sum(line.startswith("|") for line in lines)
    cleaned = topic == "compacted" and records < expected  # once more since a client read it
    if records != expected and not cleaned:
        raise Disagreement(f"{topic}: Kafka's tool sees {records} records, a client {expected}")


def check_with_our_tool(folders: Sequence[Path]) -> None:
    program = Path(sys.executable).with_name("anabranch")
    command = [str(program), "log", "dump", "--records", "--summary", *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise Disagreement(f"anabranch log dump:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    print(f"  {done.stderr.splitlines()[-1] if done.stderr else 'accepted'}")


def serve_with_kafka(
    ours: Path, expected: dict[str, list[varied_data.Record]], folder: Path, clean: bool
) -> None:
    """A real Kafka on copies of our partition folders gives the same records."""
    kafka = Kafka(folder)
    kafka.start()
    try:
        varied_data.create(kafka.bootstrap)
        kafka.stop()
        theirs = partition_folders(kafka.data)
        for topic, source in partition_folders(ours).items():
            for old in theirs[topic].iterdir():
                if old.name != "partition.metadata":  # the topic's id, as Kafka's own metadata has it
                    old.unlink()
            for file in source.iterdir():
                if file.name != "partition.metadata":
                    shutil.copy(file, theirs[topic] / file.name)
        if not clean:
            (kafka.data / ".kafka_cleanshutdown").unlink()
            (kafka.data / "recovery-point-offset-checkpoint").unlink()
        kafka.start(keep=True)
        for topic, records in expected.items():
            if topic == "compacted":
                continue  # Kafka's own cleaner may have gone further meanwhile
            got = varied_data.read_all(kafka.bootstrap, topic)
            if got != records:
                raise Disagreement(
                    f"{topic}: Kafka serves {len(got)} records of our files, we {len(records)}"
                )
        print(
            f"  {len(expected) - 1} topics served alike after {'a clean' if clean else 'an unclean'} shutdown"
        )
    finally:
        kafka.stop()


def wait_for_compaction(bootstrap: str, timeout_s: float = 30) -> None:
    """Until the cleaner has been through: each of the 200 keys is there once, but for the active segment."""
    deadline = time.monotonic() + timeout_s
    while len(varied_data.read_all(bootstrap, "compacted")) > 5000:
        if time.monotonic() > deadline:
            raise Disagreement(f"nothing is compacted after {timeout_s:.0f} s")
        time.sleep(0.5)


def fill_ours(folder: Path, scale: int) -> tuple[Path, dict[str, list[varied_data.Record]]]:
    folder.mkdir()
    broker = Ours(folder, OUR_SETTINGS)
    broker.start()
    try:
        varied_data.create(broker.bootstrap)
        varied_data.fill(broker.bootstrap, scale)
        broker.kill()
        broker.start()
        varied_data.fill(broker.bootstrap, scale)
        broker.stop()
        broker.start()
        wait_for_compaction(broker.bootstrap)
        records = {topic: varied_data.read_all(broker.bootstrap, topic) for topic in varied_data.TOPICS}
        broker.stop()
    finally:
        broker.kill()
    return broker.data, records


def fill_kafka(folder: Path, scale: int) -> Path:
    kafka = Kafka(folder, {"log.cleaner.backoff.ms": "500"})
    kafka.start()
    try:
        varied_data.create(kafka.bootstrap)
        varied_data.fill(kafka.bootstrap, scale)
    finally:
        kafka.stop()
    return kafka.data


def main() -> None:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--scale", type=int, default=1, help="times as much data")
    parser.add_argument("--keep", type=Path, help="leave everything in this new folder")
    parser.add_argument("--skip-broker", action="store_true", help="without step 3")
    parser.add_argument("--only-kafka", action="store_true", help="Kafka's files only: judges the judge")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="dump-log-segments-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        print("Kafka's own files", flush=True)
        theirs = fill_kafka(folder / "kafka", args.scale)
        check_with_our_tool(list(partition_folders(theirs).values()))
        if args.only_kafka:
            return
        print("our files, by Kafka's DumpLogSegments", flush=True)
        data, records = fill_ours(folder / "ours", args.scale)
        check_with_kafkas_tool(data, {topic: len(rows) for topic, rows in records.items()})
        print("our files, by anabranch log dump", flush=True)
        check_with_our_tool([data])
        if not args.skip_broker:
            print("our files, served by Kafka", flush=True)
            serve_with_kafka(data, records, folder / "served-clean", clean=True)
            serve_with_kafka(data, records, folder / "served-unclean", clean=False)
    except Disagreement as disagreement:
        sys.exit(
            f"DISAGREE: {disagreement}\n(files in {folder})" if args.keep else f"DISAGREE: {disagreement}"
        )
    finally:
        if args.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print("all agree")


if __name__ == "__main__":
    main()
