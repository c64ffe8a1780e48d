"""The program that Spark runs its Python processes with: this interpreter, and PySpark as it is installed.

Spark puts a zip of PySpark before everything else on PYTHONPATH.  Python keeps no compiled modules for a zip,
so each process compiles all of PySpark that it loads: half a second, for every stream that starts and every
kind of work that is done for the first time.  The zip lies in a folder that has the same PySpark, compiled.
`anabranch-spark-python` takes such a zip off the path, and Spark's jar with it, and becomes the interpreter.
"""

import os
import sys
from collections.abc import Iterable, MutableMapping

_PROGRAM = "anabranch-spark-python"
_ARCHIVES = (".zip", ".jar")


def with_interpreter(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets what Spark, which is started next, runs Python processes with, unless somebody has.

    That of executors may have been chosen, and be nowhere on this machine; that of the driver is ours.
    """
    program = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    chosen = program if os.access(program, os.X_OK) else sys.executable
    environment.setdefault("PYSPARK_PYTHON", chosen)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", chosen)


def without_archives(path: str, folders: Iterable[str]) -> str:
    """`path`, as in PYTHONPATH, without the archives of a PySpark installed in one of `folders`."""
    homes = tuple(os.path.join(os.path.realpath(folder), "pyspark", "") for folder in folders if folder)
    kept = (
        entry
        for entry in path.split(os.pathsep)
        if not (entry.endswith(_ARCHIVES) and os.path.realpath(entry).startswith(homes))
    )
    return os.pathsep.join(kept)


def main() -> None:
    path = without_archives(os.environ.pop("PYTHONPATH", ""), sys.path)
    if path:
        os.environ["PYTHONPATH"] = path
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
