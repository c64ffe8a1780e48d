"""JVM options for Spark in tests: what makes a JVM cheap that lives for a minute.

The second compiler never earns back what it costs by then, and on few processors neither do the collector's
threads: without them a test file on Spark takes a third less of the processor.
"""

from collections.abc import MutableMapping

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""Of drivers and Connect servers; of the JVM that makes up their commands; of a cluster's processes."""


def make_short_lived(environment: MutableMapping[str, str]) -> None:
    """Whatever is started with `environment`; what is set there already stays."""
    for name in _VARIABLES:
        environment.setdefault(name, SHORT_LIVED)
