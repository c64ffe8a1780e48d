"""Child processes, passed in: programs that a node starts beside itself.

A child's standard input is a pipe that ends with the node, which is how a child learns that nobody needs it
any more.  A simulation brings its own `Processes` and runs what they stand for in the loop.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

_LONGEST_LINE_BYTES = 16 << 20


class Child(Protocol):
    """A process that was started, as asyncio has it."""

    stdin: asyncio.StreamWriter | None
    stdout: asyncio.StreamReader | None
    stderr: asyncio.StreamReader | None

    @property
    def returncode(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


class Processes(Protocol):
    async def start(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        output: IO[Any] | None = None,
    ) -> Child:
        """Start `command`, with `variables` besides this process's own.

        What it says goes to `output`, or is read from the child's `stdout` and `stderr`.
        """


class RealProcesses:
    async def start(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        output: IO[Any] | None = None,
    ) -> Child:
        said: Any = asyncio.subprocess.PIPE if output is None else output
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=said,
            stderr=said,
            limit=_LONGEST_LINE_BYTES,
            env={**os.environ, **(variables or {})},
        )
