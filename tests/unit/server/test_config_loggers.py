import logging
from collections.abc import Iterator

import pytest

from anabranch.base.errors import Invalid, InvalidConfig
from anabranch.server.config_changes import Change, Op
from anabranch.server.config_loggers import check_levels, logger_levels, set_levels

NAME = "anabranch.test.config.loggers"


@pytest.fixture(autouse=True)
def own_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    yield logger
    for name in (NAME, "anabranch.test.config"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_a_logger_has_its_own_level_or_that_above_it() -> None:
    levels = logger_levels()
    assert levels[NAME] == levels["root"]
    set_levels([Change("anabranch.test.config", Op.SET, "FATAL")])
    assert logger_levels()[NAME] == "FATAL"
    set_levels([Change(NAME, Op.SET, "TRACE")])
    assert logger_levels()[NAME] == "TRACE"
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    set_levels([Change(NAME, Op.DELETE, "")])
    assert logger_levels()[NAME] == "FATAL"


def test_a_level_between_two_words() -> None:
    logging.getLogger(NAME).setLevel(25)
    assert logger_levels()[NAME] == "WARN"
    logging.getLogger(NAME).setLevel(99)
    assert logger_levels()[NAME] == "FATAL"


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        (
            Change("root", Op.SET, "FOO"),
            InvalidConfig,
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (Change("root", Op.DELETE, ""), Invalid, "Removing the log level of the root logger is not allowed"),
        (Change("no.such", Op.SET, "INFO"), InvalidConfig, r"Logger no\.such does not exist!"),
        (Change("no.such", Op.DELETE, ""), InvalidConfig, r"Logger no\.such does not exist!"),
        (Change(NAME, Op.APPEND, "INFO"), Invalid, "APPEND operation is not allowed for the BROKER_LOGGER"),
        (Change(NAME, Op.SET, "debug"), InvalidConfig, "not a supported log level"),
    ],
)
def test_refusals(change: Change, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint) as caught:
        check_levels([Change(NAME, Op.SET, "INFO"), change])
    assert type(caught.value) is error


def test_a_folder_of_loggers_counts() -> None:
    check_levels([Change("anabranch.test.config", Op.SET, "DEBUG")])
