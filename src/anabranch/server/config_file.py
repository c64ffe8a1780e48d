"""The configuration a broker starts with: a file, the environment, flags; the later wins.

    file         server.properties, in Kafka's format, or anything.toml:   [log]
                                                                           retention.hours = 24
    environment  ANABRANCH_LOG_RETENTION_HOURS=24     the name in capitals, dots as underscores
                 ANABRANCH_MAX_OPEN_FILES=1024        options that start with `anabranch.` say it once
    flags        log.retention.hours=24

A name that is no option is an error, with what might have been meant.  Only the environment is read more
leniently, because others write there too (Kubernetes sets ANABRANCH_PORT for a service of that name): there
a name that is nothing like an option is not ours, one that nearly is one is a mistake.  What tells commands
which cluster they are about (`_FOR_COMMANDS`) is passed over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.base.config import closest
from anabranch.base.config_properties import parse_properties
from anabranch.base.errors import InvalidConfig
from anabranch.server.config import BROKER_OPTIONS, BrokerConfig, Layers

_PREFIX = "ANABRANCH_"
_FOR_COMMANDS = frozenset(("BOOTSTRAP", "CLUSTER", "HTTP", "SERVICE", "STRICT"))
NOTHING: Mapping[str, str] = {}


def load(
    file: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str],
    defaults: Mapping[str, str] = NOTHING,
) -> BrokerConfig:
    """What the broker is told at its start, `defaults` where it is told nothing.

    InvalidConfig, for a person to read, if it cannot be.
    """
    static = {
        **defaults,
        **(_from_file(file) if file else {}),
        **_from_environment(environ),
        **_known(overrides, "the command line"),
    }
    return BrokerConfig.build(Layers(static, {}, {}))


def _known(values: Mapping[str, str], where: str) -> Mapping[str, str]:
    for name, text in values.items():
        declared = BROKER_OPTIONS.get(name)
        if declared is None:
            raise InvalidConfig(f"{where}: unknown option {name}{closest(name, BROKER_OPTIONS)}")
        try:
            declared.parse(text)
        except InvalidConfig as error:
            raise InvalidConfig(f"{where}: {error}") from error
    return values


def _from_file(path: Path) -> Mapping[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
        entries = _from_toml(text) if path.suffix == ".toml" else parse_properties(text)
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, InvalidConfig) as error:
        raise InvalidConfig(f"{path}: {error}") from error
    return _known(entries, str(path))


def _from_toml(text: str) -> dict[str, str]:
    import tomllib  # few have one, and it costs milliseconds of the start

    try:
        return dict(_flat(tomllib.loads(text), ""))
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(str(error)) from error


def _flat(table: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    """`{"log": {"dirs": ["a"]}}` as `log.dirs=a`."""
    entries = []
    for key, value in table.items():
        if isinstance(value, dict):
            entries += _flat(value, f"{prefix}{key}.")
        else:
            items = value if isinstance(value, list) else [value]
            entries.append((prefix + key, ",".join(map(_scalar, items))))
    return entries


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidConfig(f"{value!r} is neither a string, a number, a boolean nor a list of them")


def _from_environment(environ: Mapping[str, str]) -> Mapping[str, str]:
    names = {name.removeprefix("anabranch.").upper().replace(".", "_"): name for name in BROKER_OPTIONS}
    values = {}
    for variable, text in environ.items():
        if not variable.startswith(_PREFIX):
            continue
        capitals = variable.removeprefix(_PREFIX)
        if capitals in names:
            values[names[capitals]] = text
        elif capitals not in _FOR_COMMANDS and (meant := closest(capitals, names)):
            raise InvalidConfig(f"the environment: unknown option {variable}{meant}")
    return _known(values, "the environment")
