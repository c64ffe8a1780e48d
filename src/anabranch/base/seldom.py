"""Seldom: a logger for what may happen a thousand times per second, one line now and then with a count."""

import logging
import time


class Seldom:
    __slots__ = ("_interval_s", "_log", "_next", "_unsaid")

    def __init__(self, log: logging.Logger, interval_s: float) -> None:
        self._log = log
        self._interval_s = interval_s
        self._next = 0.0
        self._unsaid = 0

    def warning(self, message: str, *arguments: object) -> None:
        now = time.monotonic()
        if now < self._next:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} times since the last such line)" if self._unsaid else ""
        self._log.warning(message + more, *arguments)
        self._next, self._unsaid = now + self._interval_s, 0
