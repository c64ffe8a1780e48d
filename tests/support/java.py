"""JVM options for Spark in tests: what makes a JVM cheap that lives for a minute.

The second compiler never earns back what it costs by then, and on few processors neither do the collector's
threads: without them a test file on Spark takes a third less of the processor.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""Of drivers and Connect servers; of the JVM that makes up their commands; of a cluster's processes."""


def make_short_lived(environment: MutableMapping[str, str]) -> None:
    """Whatever is started with `environment`; what is set there already stays."""
    for name in _VARIABLES:
        environment.setdefault(name, SHORT_LIVED)


def folder_without_java(folder: Path) -> Path:
    """Everything that is on the PATH but `java`, which may lie among things that scripts need."""
    for entry in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(entry).glob("*") if Path(entry).is_dir() else ():
            if program.name != "java":
                link = folder / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return folder
