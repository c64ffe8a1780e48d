"""Options of a broker: what `standalone` and `broker` are told by flags, and the configuration of it.

Settings are taken from --config, then ANABRANCH_* variables, then --set, then the flags that have a name of
their own; the last wins.
"""

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from anabranch.base.errors import InvalidConfig
from anabranch.cli.failure import Misuse
from anabranch.server.config import BrokerConfig
from anabranch.server.config_file import NOTHING, load
from anabranch.server.config_tables import ROOT as TABLES_ROOT

EPILOG = (
    "Settings are taken from --config, then ANABRANCH_* variables, then --set; the last wins. "
    "Names are Kafka's and Pulsar's: --set log.retention.hours=24"
)


def add_options(parser: argparse.ArgumentParser, data: str) -> None:
    """What every broker is told; `data` says what the folder is if none is given."""
    parser.add_argument("--data", metavar="DIR", help=f"data folder ({data})")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--kafka-port", type=int, metavar="PORT", help="for Kafka clients (default: 9092; 0: any free one)"
    )
    parser.add_argument(
        "--pulsar-port",
        type=int,
        metavar="PORT",
        help="for Pulsar clients (default: 6650; 0: any free one, -1: none)",
    )
    parser.add_argument(
        "--http-port", type=int, metavar="PORT", help="for HTTP (default: 8080; 0: any free one, -1: none)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings, .properties or .toml")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeatable"
    )
    parser.add_argument("--ready-file", type=Path, metavar="PATH", help="written, as JSON, once it serves")
    parser.add_argument(
        "--verbose", "-v", action="store_true", help="log what the broker does, not only trouble"
    )


def log_to_stderr(verbose: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def configured(
    options: argparse.Namespace, more: Mapping[str, str], defaults: Mapping[str, str] = NOTHING
) -> BrokerConfig:
    """The broker's configuration; `more` are settings that other flags amount to.  Misuse if it cannot be."""
    overrides = {**dict(name_value(text) for text in options.set), **more}
    if options.data is not None:
        overrides["log.dirs"] = options.data
    try:
        config = load(options.config, os.environ, overrides, defaults)
        overrides |= _other_ports(options, config)
        if options.host is not None or options.kafka_port is not None:
            overrides["listeners"] = config.sockets.listeners_with(options.host, options.kafka_port)
        overrides[TABLES_ROOT] = config.tables_root
        config = load(options.config, os.environ, overrides, defaults)
    except InvalidConfig as error:
        raise Misuse(str(error), "docs/configuration.md lists the settings") from error
    return config


def _other_ports(options: argparse.Namespace, config: BrokerConfig) -> dict[str, str]:
    """Ports beside Kafka's: as told, or any free one where Kafka's is any and nobody says otherwise."""
    told = {"brokerServicePort": options.pulsar_port, "webServicePort": options.http_port}
    return {
        name: str(0 if port is None else port)
        for name, port in told.items()
        if port is not None or (options.kafka_port == 0 and name not in config.layers.static)
    }


def name_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Misuse(f"--set {text!r} is not NAME=VALUE")
    return name, value
