import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from anabranch.spark.interpreter import with_interpreter, without_archives

SITE = "/env/lib/site-packages"


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("", ""),
        ("/mine", "/mine"),
        (f"{SITE}/pyspark/python/lib/pyspark.zip", ""),
        (f"{SITE}/pyspark/python/lib/pyspark.zip:/mine:{SITE}/pyspark/jars/spark-core.jar", "/mine"),
        (f"{SITE}/pyspark/python", f"{SITE}/pyspark/python"),
        ("/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/pyspark.zip"),
        ("/job/helpers.zip:", "/job/helpers.zip:"),
    ],
)
def test_only_what_is_installed_unzipped_is_taken_off(path: str, left: str) -> None:
    assert without_archives(path, ["", "/elsewhere", SITE]) == left


def test_who_has_chosen_an_interpreter_gets_it() -> None:
    chosen = {"PYSPARK_PYTHON": "/usr/bin/python3"}
    with_interpreter(chosen)
    assert chosen["PYSPARK_PYTHON"] == "/usr/bin/python3"
    assert Path(chosen["PYSPARK_DRIVER_PYTHON"]).parent == Path(sys.executable).parent


def test_the_program_is_this_interpreter() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    with_interpreter(environment)
    home = Path(str(pyspark.__file__)).parent
    environment["PYTHONPATH"] = os.pathsep.join([str(home / "python" / "lib" / "pyspark.zip"), "/mine"])
    show = "import os, sys, pyspark; print(sys.executable, os.environ['PYTHONPATH'], pyspark.__file__)"
    answer = subprocess.run(
        [environment["PYSPARK_PYTHON"], "-c", show],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    program, path, package = answer.stdout.split()
    assert (path, Path(program).resolve()) == ("/mine", Path(sys.executable).resolve())
    assert Path(package).resolve() == (home / "__init__.py").resolve()
