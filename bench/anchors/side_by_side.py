"""The same steps on Apache Kafka and on ours, and what Kafka's own tools say after each: the same words must
come out.

A step is a command of Kafka's, whose output is compared line by line after taking out what differs by nature
(addresses, ids, times, rates), or something done to the broker in between, which says nothing:

    STEPS = (
        Act("two members", lambda stage: ...),
        Command("describe", "consumer.group.ConsumerGroupCommand", AT + "--describe --group g"),
    )

The two sides run at the same time, each in its own thread, and wait for each other after each step.  A
command whose output has to differ says why (`because`); when it does not differ any more, that is wrong, too.
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
from typing import NamedTuple, Protocol

from servers import JARS, Kafka, Ours

PACKAGE = "org.apache.kafka.tools."
AT = "--bootstrap-server BOOTSTRAP "
LOG4J = "-Dlog4j2.level=OFF"
TIMEOUT_S = 90.0


class Side(Protocol):
    """A broker, or a cluster of them."""

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> object: ...


@dataclass(frozen=True)
class Stage:
    """One side, a folder of its own, and what is held open until the end."""

    side: Side
    folder: Path
    held: ExitStack = field(default_factory=ExitStack)
    words: dict[str, str] = field(default_factory=dict)
    """What later commands are told in place of a word: ids that only this broker knows."""

    @property
    def bootstrap(self) -> str:
        return self.side.bootstrap


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
    because: str = ""
    """Why the two must differ."""


@dataclass(frozen=True)
class Act:
    """Something done between commands."""

    name: str
    do: Callable[[Stage], object]


Step = Command | Act

Patterns = tuple[tuple[re.Pattern[str], str], ...]
TAKEN_OUT: Patterns = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r"(Cluster ID: )\S+"), r"\1ID"),
    (re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+\] ?"), ""),
    (re.compile(r"(records sent), .*"), r"\1"),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":"PATH"'),
    (re.compile(r'"size":\d+'), '"size":BYTES'),
    (re.compile(r"(?<![.\d])1\d{12}\b"), "TIME"),
    (re.compile(r"127\.0\.0\.1 +\d+"), "ADDRESS"),
    # KRaft sets min.insync.replicas itself, in the cluster's dynamic configuration.
    (re.compile(r"min\.insync\.replicas=1 .*"), "min.insync.replicas=1"),
    (re.compile(r"Configs: min\.insync\.replicas=1,?"), "Configs: "),
    # The text of an error is the broker's own.
    (re.compile(r"(\w+Exception): .*"), r"\1"),
    (re.compile(r"(Error while executing \w+ command) : .*"), r"\1"),
)
IDS: Patterns = (
    (re.compile(r'"broker":\d+'), '"broker":NODE'),
    (re.compile(r"Leader: \d+"), "Leader: NODE"),
    (re.compile(r"(Replicas|Isr): \d+"), r"\1: NODE"),
    (re.compile(r"^\d+(\s+127|\s+ADDRESS)"), r"NODE\1"),
)
"""Those of brokers, which are not the same where each side is a broker alone."""
# Stack traces, the tools' warnings about themselves, the table's rulers (as wide as the address).
SKIPPED = re.compile(r"^\s+at |^\tat |^Caused by|WARN|^\s*$|DEPRECATED|^\s*\.\.\. \d+ more|HOST\s+PORT")


class Sides(NamedTuple):
    """How the two are made from a folder and settings, and what more is taken out."""

    kafka: Callable[[Path, Mapping[str, str] | None], Side]
    ours: Callable[[Path, Mapping[str, str] | None], Side]
    taken_out: Patterns = ()


ONE_BROKER = Sides(Kafka, Ours, IDS)


def java(tool: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs one of Kafka's tools; short-lived, so that half a compiler is enough."""
    main = tool if tool.startswith("kafka.") else PACKAGE + tool
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", LOG4J, "-cp", f"{JARS}/*", main, *arguments]


def told(command: Command, stage: Stage) -> list[str]:
    text = command.arguments.replace("BOOTSTRAP", stage.bootstrap).replace("FOLDER", str(stage.folder))
    for word, meant in stage.words.items():
        text = text.replace(word, meant)
    return text.split()


def run(command: Command, stage: Stage, taken_out: Patterns) -> Lines:
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
            for pattern, replacement in TAKEN_OUT + taken_out:
                line = pattern.sub(replacement, line)
            lines.append(line.rstrip().replace(str(stage.folder), "FOLDER"))
    return [f"exit code {done.returncode}", *command.shown(lines)]


def take(step: Step, stage: Stage, taken_out: Patterns) -> Lines:
    if isinstance(step, Act):
        step.do(stage)
        return []
    return run(step, stage, taken_out)


def compare(
    steps: Sequence[Step], stages: Sequence[Stage], taken_out: Patterns, only: str, show: bool
) -> int:
    """How many commands differ and should not, or the other way round."""
    wrong = 0
    with ThreadPoolExecutor(len(stages)) as threads:
        for step in steps:
            if isinstance(step, Command) and only not in step.name:
                continue
            theirs, mine = threads.map(lambda stage, step=step: take(step, stage, taken_out), stages)
            if isinstance(step, Act):
                print(f"  {'':8} ({step.name})", flush=True)
                continue
            wrong += is_wrong(step, theirs, mine)
            print(f"  {verdict(step, theirs, mine)} {step.name}", flush=True)
            if show:
                print("\n".join(f"             {line}" for line in theirs))
            if theirs != mine:
                print("\n".join(difflib.unified_diff(theirs, mine, "Apache Kafka", "ours", lineterm="", n=1)))
    return wrong


def is_wrong(command: Command, theirs: Lines, mine: Lines) -> bool:
    """What differs as it must has the same exit code all the same."""
    return (theirs != mine) != bool(command.because) or theirs[0] != mine[0]


def verdict(command: Command, theirs: Lines, mine: Lines) -> str:
    if theirs == mine:
        return f"SAME, and that must not be: {command.because}:" if command.because else f"{'same':8}"
    if command.because and not is_wrong(command, theirs, mine):
        return f"differs as it must, {command.because}:"
    return "DIFFERS "


def main(
    about: str | None,
    steps: Sequence[Step],
    settings: Mapping[str, str] | None = None,
    sides: Sides = ONE_BROKER,
) -> None:
    """A command line for `steps`; `settings` are both sides'."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=shown)
    parser.add_argument("--only", default="", metavar="TEXT", help="commands whose name has this")
    parser.add_argument("--show", action="store_true", help="print the output as well")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as held:
        folder = Path(temporary)
        for name in ("ours", "stage-kafka", "stage-ours"):
            (folder / name).mkdir()
        kafka, ours = sides.kafka(folder / "kafka", settings), sides.ours(folder / "ours", settings)
        for side in (kafka, ours):
            side.start()
            held.callback(side.stop)
        stages = [Stage(kafka, folder / "stage-kafka"), Stage(ours, folder / "stage-ours")]
        for stage in stages:
            held.enter_context(stage.held)
        wrong = compare(steps, stages, sides.taken_out, args.only, args.show)
    if wrong:
        sys.exit(f"{wrong} commands differ, or do not and should")
    print("all the same")
