"""Control: how commands reach the supervisor of a local cluster, over a socket in its data folder.

    {"do": "kill", "id": "broker-1"}   ──>   {"processes": [...]}, or {"failed": "why"}

It is a line of JSON each way, and the socket is this user's alone.  Both ends go to the folder and call it by
its name, because a path may be longer than a socket's can be.
"""

import asyncio
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch.base.errors import AnabranchError
from anabranch.cli.failure import CommandError
from anabranch.cli.local_cluster.supervisor import Supervisor

_SOCKET = "control.sock"
_LAST_ANSWERS_S = 2.0


class Control:
    """The supervisor's end."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._answering: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen in the working directory, which is the data folder."""
        with suppress(FileNotFoundError):
            os.unlink(_SOCKET)  # of one that was killed: the folder is ours
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._accept, _SOCKET)
        finally:
            os.umask(before)

    async def close(self) -> None:
        """Take nothing more; what was asked is answered, if that can be soon: all processes have ended."""
        self._server.close()
        with suppress(FileNotFoundError):
            os.unlink(_SOCKET)
        if self._answering:
            await asyncio.wait(self._answering, timeout=_LAST_ANSWERS_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            answer = await self._answer(await reader.readline())
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError):
            pass  # whoever asked has gone, or does not know how to
        finally:
            writer.close()
            self._answering.discard(task)

    async def _answer(self, line: bytes) -> dict[str, Any]:
        asked = json.loads(line)
        try:
            return {"processes": await self._supervisor.do(str(asked.get("do")), asked.get("id"))}
        except AnabranchError as error:
            return {"failed": str(error)}


def ask(data: Path, verb: str, id: str | None = None) -> list[dict[str, Any]]:
    """A command's end: ask the supervisor of the cluster in `data`.  CommandError if it will not."""
    try:
        os.chdir(data)
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(_SOCKET)
            asking.sendall(json.dumps({"do": verb, "id": id}).encode() + b"\n")
            with asking.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise CommandError(
            f"no cluster runs in {data}", f"start one with: anabranch cluster up --data {data}"
        ) from error
    if not line:
        raise CommandError("the cluster's supervisor went away without an answer")
    answer = json.loads(line)
    if "failed" in answer:
        raise CommandError(answer["failed"])
    processes: list[dict[str, Any]] = answer["processes"]
    return processes
