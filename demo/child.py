"""A command of Anabranch's that ends with the demo, however the demo ends.

    python -m demo.child TERM standalone --data …

The demo holds the other end of the child's standard input.  When the demo is gone, killed or not, that ends,
and the child sends itself the signal that an operator would stop it with.
"""

import os
import signal
import subprocess
import sys
import threading
from typing import IO


def start(
    stopped_by: signal.Signals, arguments: list[str], output: int | IO[bytes], errors: int | None = None
) -> subprocess.Popen[bytes]:
    """`anabranch ARGUMENTS`, under way; it must be stopped, or ends with us."""
    return subprocess.Popen(
        [sys.executable, "-m", "demo.child", stopped_by.name.removeprefix("SIG"), *arguments],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=errors,
        start_new_session=True,  # Ctrl-C is for us, who stop it then
    )


def _end_with_parent(stopped_by: signal.Signals) -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), stopped_by)


def main(arguments: list[str]) -> int:
    stopped_by = signal.Signals[f"SIG{arguments[0]}"]
    threading.Thread(target=_end_with_parent, args=(stopped_by,), daemon=True).start()
    from anabranch.cli.main import main as command

    return command(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
