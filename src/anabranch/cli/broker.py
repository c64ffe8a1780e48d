"""`anabranch broker`: one broker of a cluster in this process, until a signal stops it.

Who it is and which ZooKeeper keeps the cluster is said by flags, or by node.id, zookeeper.connect and
log.dirs in a file that Kafka's brokers would read, too.
"""

import argparse
import platform

from anabranch.cli.broker_options import EPILOG, add_options, configured, log_to_stderr
from anabranch.cli.failure import Misuse
from anabranch.cli.serving import serve
from anabranch.server.config import BrokerConfig

_DEFAULTS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
"""Kafka's.  A broker that is alone has others."""
_NEEDED = {"node.id": "--id N", "zookeeper.connect": "--zookeeper HOST:PORT", "log.dirs": "--data DIR"}


def run(arguments: list[str], started: float) -> int:
    """`started`, on the monotonic clock, is when the process began."""
    options = _parser().parse_args(arguments)
    log_to_stderr(options.verbose)
    config = _configured(options)
    missing = [flag for name, flag in _NEEDED.items() if name not in config.layers.static]
    if missing:
        raise Misuse(
            f"a broker of a cluster needs {', '.join(missing)}",
            "a broker that needs nobody else is: anabranch standalone",
        )
    return serve(config, options.ready_file, started)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anabranch broker",
        description="Run one broker of a cluster until it is told to stop (Ctrl-C, SIGTERM).",
        epilog=EPILOG,
    )
    parser.add_argument("--id", type=int, metavar="N", help="the broker's id, its own in the cluster")
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,...[/chroot]",
        help="the ZooKeeper that keeps the cluster; `anabranch zookeeper` starts one",
    )
    parser.add_argument(
        "--host-id",
        metavar="NAME",
        help="the machine it is on: replicas are kept apart from it (default: the machine's name)",
    )
    parser.add_argument("--rack", metavar="NAME", help="the rack or zone it stands in")
    add_options(parser, "needed; one for each broker")
    return parser


def _configured(options: argparse.Namespace) -> BrokerConfig:
    flags = {
        "node.id": None if options.id is None else str(options.id),
        "zookeeper.connect": options.zookeeper,
        "host.id": options.host_id,
        "broker.rack": options.rack,
    }
    told = {name: text for name, text in flags.items() if text is not None}
    return configured(options, told, {"host.id": platform.node(), **_DEFAULTS})
