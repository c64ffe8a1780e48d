"""ZooKeeper server: how one is started from the jars inside PySpark, its configuration and its command.

    DATA/zoo.cfg      written at each start, from the command line; log.properties too
    DATA/myid         which server of the ensemble it is
    DATA/version-2/   ZooKeeper's log and snapshots

The tick is short, because it is the unit in which sessions end and servers of an ensemble notice each other:
a session may be as short as two ticks, and ends within one tick of its time.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from anabranch.base.errors import Invalid
from anabranch.base.java import find_java

_TICK_MS = 500
_LONGEST_SESSION_MS = 120_000
_TICKS_TO_JOIN = 40  # for a server that is new, or has been away, to load what the leader has
_TICKS_TO_FOLLOW = 10
_CONFIGURATION = "zoo.cfg"
_LOGGING = "log.properties"
# A server that is asked for its state before it has read its data cannot close the connection, and says so at
# length: we ask while it starts.
_LOG_SETTINGS = """\
status=ERROR
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{{1}}: %m%n
rootLogger.level={level}
rootLogger.appenderRef.console.ref=console
logger.connection.name=org.apache.zookeeper.server.ServerCnxn
logger.connection.level=OFF
"""

_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "netty-*.jar",
    "snappy-java-*.jar",
    "commons-cli-*.jar",
    "commons-io-*.jar",
    "audience-annotations-*.jar",
)
"""What the server loads.  All of PySpark's would do, and take twice as long to start."""

# A cluster's metadata is some tens of megabytes; a heap that is too small ends the server, not in silence.
_JVM = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disable.jmx=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=4096",  # kB of the log at a time, not 64 MB
)


class Server(NamedTuple):
    data: Path
    host: str
    port: int
    id: int = 1
    ensemble: Sequence[str] = ()
    """HOST:PEER_PORT:ELECTION_PORT of each, the first is that of server 1.  Empty if there is one only."""


def command_of(server: Server) -> list[str]:
    """The program and its arguments.  Invalid, with what to install, if Java or the jars are missing."""
    jars = find_jars()
    java = find_java(who="ZooKeeper") / "bin" / "java"
    return [
        str(java),
        *_JVM,
        f"-Dlog4j2.configurationFile={server.data.absolute() / _LOGGING}",
        *("-cp", ":".join(map(str, jars))),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(server.data.absolute() / _CONFIGURATION),
    ]


def find_jars() -> list[Path]:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Invalid(
            "ZooKeeper's server comes with PySpark, which is not installed. "
            "`pip install 'anabranch[cluster]'` brings it"
        )
    folder = Path(spec.origin).parent / "jars"
    jars = sorted({jar for pattern in _JARS for jar in folder.glob(pattern)})
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise Invalid(
            f"there is no ZooKeeper in {folder}, where PySpark has its jars. "
            "`pip install --force-reinstall 'anabranch[cluster]'` brings one that has it"
        )
    return jars


def prepare(server: Server, *, is_verbose: bool) -> None:
    """Write the configuration; the data folder is made if it is not there."""
    server.data.mkdir(parents=True, exist_ok=True)
    (server.data / "myid").write_text(f"{server.id}\n")
    (server.data / _CONFIGURATION).write_text(configuration_of(server), encoding="ascii")
    level = "INFO" if is_verbose else "ERROR"
    (server.data / _LOGGING).write_text(_LOG_SETTINGS.format(level=level), encoding="ascii")


def configuration_of(server: Server) -> str:
    settings = {
        "dataDir": _escaped(server.data.absolute().as_posix()),
        "clientPort": server.port,
        "clientPortAddress": server.host,
        "tickTime": _TICK_MS,
        "minSessionTimeout": 2 * _TICK_MS,
        "maxSessionTimeout": _LONGEST_SESSION_MS,
        "initLimit": _TICKS_TO_JOIN,
        "syncLimit": _TICKS_TO_FOLLOW,
        "maxClientCnxns": 0,  # brokers of one machine come from one address
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
        "4lw.commands.whitelist": "srvr,ruok",
        "admin.enableServer": "false",
        **{f"server.{id}": address for id, address in enumerate(server.ensemble, 1)},
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    """As Java reads properties: Latin-1, and backslashes for the rest."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(chr(code) if 32 <= code < 127 and code != 92 else f"\\u{code:04x}" for code in codes)
