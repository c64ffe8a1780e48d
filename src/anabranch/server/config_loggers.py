"""The levels of this process's loggers, in Kafka's words, which are those of log4j.

A logger's level is its own or that of the nearest above it.  Changes hold until the process ends.  Folders
of loggers (`anabranch.server`) can be set like loggers, which is the usual case.
"""

import logging
from collections.abc import Mapping, Sequence

from anabranch.base.errors import Invalid, InvalidConfig
from anabranch.server.config_changes import Change, Op

ROOT = "root"
_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}


def logger_levels() -> Mapping[str, str]:
    """Every logger with the level that holds for it."""
    levels = {
        name: _word(_logger(name).getEffectiveLevel()) for name in list(logging.root.manager.loggerDict)
    }
    levels[ROOT] = _word(logging.root.getEffectiveLevel())
    return levels


def check_levels(changes: Sequence[Change]) -> None:
    """Invalid, or InvalidConfig, if the changes cannot be made."""
    for name, op, value in changes:
        if op not in (Op.SET, Op.DELETE):
            raise Invalid(f"{op.name} operation is not allowed for the BROKER_LOGGER resource")
        if name != ROOT and name not in logging.root.manager.loggerDict:
            raise InvalidConfig(f"Logger {name} does not exist!")
        if op is Op.DELETE and name == ROOT:
            raise Invalid("Removing the log level of the root logger is not allowed")
        if op is Op.SET and value not in _LEVELS:
            raise InvalidConfig(
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(_LEVELS))}"
            )


def set_levels(changes: Sequence[Change]) -> None:
    """Make changes that `check_levels` has passed."""
    for name, op, value in changes:
        _logger(name).setLevel(_LEVELS[value] if op is Op.SET else logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _word(level: int) -> str:
    """The coarsest of Kafka's levels that lets everything of `level` through."""
    return next((word for word, number in _LEVELS.items() if level <= number), "FATAL")
