"""The same steps on Apache Kafka and on ours, and what Kafka's own tools say after each: the same words must
come out.

A step is a command of Kafka's, whose output is compared line by line after taking out what differs by nature
(addresses, ids, times, rates), or something done to the broker in between, which says nothing:

    STEPS = (
        Act("two members", lambda stage: ...),
        Command("describe", "consumer.group.ConsumerGroupCommand", AT + "--describe --group g"),
    )

The two sides run at the same time, each in its own thread, and wait for each other after each step.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from servers import JARS, Kafka, Ours

PACKAGE = "org.apache.kafka.tools."
AT = "--bootstrap-server BOOTSTRAP "
LOG4J = "-Dlog4j2.level=OFF"
TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Stage:
    """One side: its broker, a folder of its own, and what is held open until the end."""

    bootstrap: str
    folder: Path
    held: ExitStack = field(default_factory=ExitStack)
    words: dict[str, str] = field(default_factory=dict)
    """What later commands are told in place of a word: ids that only this broker knows."""


Lines = list[str]
Shown = Callable[[Lines], Lines]


def as_printed(lines: Lines) -> Lines:
    return lines


@dataclass(frozen=True)
class Command:
    name: str
    tool: str
    arguments: str
    stdin: str = ""
    shown: Shown = as_printed
    """What is compared of the lines, where not all of them are, or not in the order of their coming."""


@dataclass(frozen=True)
class Act:
    """Something done between commands."""

    name: str
    do: Callable[[Stage], object]


Step = Command | Act

TAKEN_OUT = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r"(Cluster ID: )\S+"), r"\1ID"),
    (re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+\] ?"), ""),
    (re.compile(r"(records sent), .*"), r"\1"),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":"PATH"'),
    (re.compile(r'"size":\d+'), '"size":BYTES'),
    (re.compile(r'"broker":\d+'), '"broker":NODE'),
    (re.compile(r"Leader: \d+"), "Leader: NODE"),
    (re.compile(r"(Replicas|Isr): \d+"), r"\1: NODE"),
    (re.compile(r"^\d+(\s+127|\s+ADDRESS)"), r"NODE\1"),
    (re.compile(r"(?<![.\d])1\d{12}\b"), "TIME"),
    (re.compile(r"127\.0\.0\.1 +\d+"), "ADDRESS"),
    # KRaft sets min.insync.replicas itself, in the cluster's dynamic configuration.
    (re.compile(r"min\.insync\.replicas=1 .*"), "min.insync.replicas=1"),
    (re.compile(r"Configs: min\.insync\.replicas=1,?"), "Configs: "),
    # The text of an error is the broker's own.
    (re.compile(r"(\w+Exception): .*"), r"\1"),
    (re.compile(r"(Error while executing \w+ command) : .*"), r"\1"),
)
# Stack traces, the tools' warnings about themselves, the table's rulers (as wide as the address).
SKIPPED = re.compile(r"^\s+at |^\tat |^Caused by|WARN|^\s*$|DEPRECATED|^\s*\.\.\. \d+ more|HOST\s+PORT")


def java(tool: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs one of Kafka's tools; short-lived, so that half a compiler is enough."""
    main = tool if tool.startswith("kafka.") else PACKAGE + tool
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", LOG4J, "-cp", f"{JARS}/*", main, *arguments]


def told(command: Command, stage: Stage) -> list[str]:
    text = command.arguments.replace("BOOTSTRAP", stage.bootstrap).replace("FOLDER", str(stage.folder))
    for word, meant in stage.words.items():
        text = text.replace(word, meant)
    return text.split()


def run(command: Command, stage: Stage) -> Lines:
    done = subprocess.run(
        java(command.tool, told(command, stage)),
        input=command.stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = []
    for line in (done.stdout + done.stderr).splitlines():
        if not SKIPPED.search(line):
            for pattern, replacement in TAKEN_OUT:
                line = pattern.sub(replacement, line)
            lines.append(line.rstrip().replace(str(stage.folder), "FOLDER"))
    return [f"exit code {done.returncode}", *command.shown(lines)]


def take(step: Step, stage: Stage) -> Lines:
    if isinstance(step, Act):
        step.do(stage)
        return []
    return run(step, stage)


def compare(steps: Sequence[Step], stages: Sequence[Stage], only: str, show: bool) -> int:
    """How many commands differ."""
    wrong = 0
    with ThreadPoolExecutor(len(stages)) as threads:
        for step in steps:
            if isinstance(step, Command) and only not in step.name:
                continue
            theirs, mine = threads.map(lambda stage, step=step: take(step, stage), stages)
            if isinstance(step, Act):
                print(f"  {'':8} ({step.name})", flush=True)
                continue
            wrong += theirs != mine
            print(f"  {'same' if theirs == mine else 'DIFFERS':8} {step.name}", flush=True)
            if show:
                print("\n".join(f"             {line}" for line in theirs))
            if theirs != mine:
                print("\n".join(difflib.unified_diff(theirs, mine, "Apache Kafka", "ours", lineterm="", n=1)))
    return wrong


def main(about: str | None, steps: Sequence[Step], settings: Mapping[str, str] | None = None) -> None:
    """A command line for `steps`; `settings` are both brokers'."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=shown)
    parser.add_argument("--only", default="", metavar="TEXT", help="commands whose name has this")
    parser.add_argument("--show", action="store_true", help="print the output as well")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as held:
        folder = Path(temporary)
        for name in ("ours", "stage-kafka", "stage-ours"):
            (folder / name).mkdir()
        kafka, ours = Kafka(folder / "kafka", settings), Ours(folder / "ours", settings)
        kafka.start()
        held.callback(kafka.stop)
        ours.start()
        held.callback(ours.kill)
        stages = [
            Stage(kafka.bootstrap, folder / "stage-kafka"),
            Stage(ours.bootstrap, folder / "stage-ours"),
        ]
        for stage in stages:
            held.enter_context(stage.held)
        wrong = compare(steps, stages, args.only, args.show)
    if wrong:
        sys.exit(f"{wrong} commands differ")
    print("all the same")
