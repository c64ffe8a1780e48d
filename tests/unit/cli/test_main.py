"""What `anabranch` does before it talks to anybody."""

import subprocess
import sys

import pytest

from anabranch import __version__
from anabranch.cli.main import main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"anabranch {__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in ("standalone", "topic", "produce", "consume", "group", "transaction", "log"):
        assert command in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topic", "alter", "t"], "nothing to change"),
        (["topic", "create", "t", "--config", "nonsense"], "is not NAME=VALUE"),
        (["topic", "list", "--bootstrap", "nowhere"], "is not HOST:PORT"),
        (["produce", "t", "--value", "x", "--file", "f"], "exclude each other"),
        (["produce", "t", "--idempotent", "--acks", "1"], "needs --acks all"),
        (["standalone", "--set", "nonsense"], "is not NAME=VALUE"),
        (["standalone", "--set", "no.such.option=1"], "unknown option no.such.option"),
        (["standalone", "--set", "num.partitions=none"], "num.partitions"),
        (["standalone", "--kafka-port", "70000"], "listeners"),
        (["group", "reset", "g"], "give --to or --by"),
        (["group", "reset", "g", "--to", "latest", "-p", "1"], "needs one --topic"),
        (["transaction", "abort"], "give an ID, or --topic"),
        (["log", "dump", "not-there"], "is not there"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("anabranch: ")
    assert says in shown.err.splitlines()[0]


def test_a_broker_starts_without_the_clients_libraries() -> None:
    """They cost more than half of the time that `standalone` has."""
    heavy = {
        "typer",
        "click",
        "rich",
        "confluent_kafka",
        "aiokafka",
        "kafka",
        "kazoo",
        "cramjam",
        "lz4.frame",
    }
    code = f"import sys, anabranch.cli.main, anabranch.cli.standalone; print(*({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
