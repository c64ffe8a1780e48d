"""The `anabranch` command.

`standalone` has half a second from its first import to its first answer, so it is dispatched here,
before anything heavy is imported: the library that parses the other commands' options costs as much
as the rest of Python's start.  Everything else goes through `cli/app.py`.

    anabranch standalone ...   -> cli/standalone.py
    anabranch --version        -> here
    anabranch <the rest>       -> cli/app.py

A CommandError becomes its two lines on stderr; a bug keeps its traceback.
"""

import os
import sys
import time

from anabranch import __version__
from anabranch.cli.failure import CommandError

_STARTED = time.monotonic()
_INTERRUPTED = 130  # 128 + SIGINT, as shells say it
_PIPE_CLOSED = 141  # 128 + SIGPIPE
_HELP = frozenset(("--help", "-h"))


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return _dispatch(arguments)
    except CommandError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output (`| head`) has gone.  Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["standalone"]:
        from anabranch.cli import standalone

        return standalone.run(arguments[1:], _STARTED)
    if arguments in (["--version"], ["-V"]):
        print(f"anabranch {__version__}")
        return 0
    if arguments and not _HELP.intersection(arguments):
        os.environ.setdefault(
            "TYPER_USE_RICH", "0"
        )  # loading what draws help takes longer than most commands
    from anabranch.cli import app

    return app.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
