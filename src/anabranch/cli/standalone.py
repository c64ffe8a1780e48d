"""`anabranch standalone`: a broker in this process that needs nobody else, until a signal stops it.

With --brokers N it is N of them, each in a process of its own, and a ZooKeeper: several cores are used by
several brokers (`cli/local_cluster`).

Nothing that a broker does not need is imported here before it serves: half a second is all there is.
"""

import argparse
from pathlib import Path

from anabranch.cli.broker_options import EPILOG, add_options, configured, log_to_stderr
from anabranch.cli.failure import Misuse
from anabranch.cli.serving import serve


def run(arguments: list[str], started: float) -> int:
    """`started`, on the monotonic clock, is when the process began."""
    options = _parser().parse_args(arguments)
    log_to_stderr(options.verbose)
    if options.brokers != 1:
        return _run_cluster(options, started)
    config = configured(options, {})
    if config.node.zookeeper_connect is not None:
        raise Misuse(
            f"zookeeper.connect={config.node.zookeeper_connect} makes this a broker of a cluster",
            "start it with: anabranch broker --id N --zookeeper HOST:PORT --data DIR",
        )
    if (config.node.data_dir / "cluster.json").exists():
        raise Misuse(
            f"{config.node.data_dir} holds a cluster of several brokers",
            "start it with --brokers N, or choose another folder with --data",
        )
    return serve(config, options.ready_file, started)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anabranch standalone",
        description="Run a broker on this machine until it is told to stop (Ctrl-C, SIGTERM).",
        epilog=EPILOG,
    )
    add_options(parser, "default: ./anabranch-data")
    parser.add_argument(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="a cluster of so many brokers, to use several cores; the short form of `anabranch cluster up`",
    )
    return parser


def _run_cluster(options: argparse.Namespace, started: float) -> int:
    from anabranch.cli.local_cluster.plan import Wanted
    from anabranch.cli.local_cluster.up import run_cluster

    return run_cluster(
        Wanted(
            data=Path(options.data or "anabranch-data"),
            brokers=options.brokers,
            host=options.host,
            kafka_port=options.kafka_port,
            pulsar_port=options.pulsar_port,
            http_port=options.http_port,
            config=options.config,
            settings=tuple(options.set),
            ready_file=options.ready_file,
        ),
        started,
        verbose=options.verbose,
    )
