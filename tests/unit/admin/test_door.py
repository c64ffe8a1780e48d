"""The first moments of an HTTP connection."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.admin import listener as module
from anabranch.admin.listener import Door, HttpListener
from anabranch.base.executors import thread_pool


class Transport:
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def abort(self) -> None:
        self.ended.set()

    def is_closing(self) -> bool:
        return self.ended.is_set()

    def pause_reading(self) -> None:
        """Nothing comes anyway."""


async def test_who_cannot_be_served_is_not_left_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(services: object) -> None:
        raise ImportError("the web framework is broken")

    monkeypatch.setattr(module, "_load", fail)
    monkeypatch.setattr(module.log, "exception", lambda *_: None)
    services: Any = SimpleNamespace(threads=thread_pool("t", 1))
    transport: Any = Transport()
    door = Door(HttpListener(services))
    door.connection_made(transport)
    door.data_received(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(transport.ended.wait(), 60)
