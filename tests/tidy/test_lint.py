"""The format, lint and types that `make check` asks for, beside the other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT


@pytest.mark.parametrize("command", ["ruff format --check .", "ruff check .", "mypy"])
def test_the_tree_is_clean(command: str) -> None:
    program, *arguments = command.split()
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
