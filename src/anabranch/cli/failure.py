"""Command failures: one line that says what is wrong, one that says what to do next.

    anabranch: no broker answers at 127.0.0.1:9092
      start one with `anabranch standalone`, or name another with --bootstrap HOST:PORT

Exit codes: 1 it did not work, 2 it was asked for wrongly.
"""

FAILED = 1
MISUSED = 2


class CommandError(Exception):
    """Ends a command.  `main` prints it and exits with `exit_code`."""

    def __init__(self, message: str, next_step: str = "", exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.next_step = next_step
        self.exit_code = exit_code

    def __str__(self) -> str:
        line = f"anabranch: {self.args[0]}"
        return f"{line}\n  {self.next_step}" if self.next_step else line


class Misuse(CommandError):
    """The command line or the configuration asks for something that cannot be."""

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message, next_step, MISUSED)
