"""The table of Pulsar commands: what a client may say, and who answers.

One file per command group, named by it.  Importing the file registers its commands:

    @command(BaseCommand.LOOKUP, refusal=lookup_refused)
    def lookup(request: Lookup, connection: PulsarConnection) -> Later: ...

`request` is the message of that command.  A handler acts at once; where it must wait it gives back a
coroutine for the rest, which runs as a task of its own, so that nothing else on the connection waits
with it.  What must hold from this command on (an id is taken, say) is done before the coroutine.

An error that the handler or its coroutine raises on purpose is told to the client by the `refusal`, in
the form that the client waits for.  A command that has no answer has no refusal, and then an error means
that the client does not keep to the protocol: the connection is closed.
"""

import importlib
import pkgutil
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.wire.pulsar.commands_pb2 import BaseCommand, Error, ServerError
from anabranch.wire.pulsar.text import has_text

if TYPE_CHECKING:
    from anabranch.server.pulsar.connection import PulsarConnection

Later = Coroutine[Any, Any, None] | None
Handler = Callable[[Any, "PulsarConnection"], Later]
Refusal = Callable[[Any, ServerError, str], BaseCommand]


class Command(NamedTuple):
    type: int
    field: str
    """The name of the message in BaseCommand."""
    handler: Handler
    refusal: Refusal | None
    has_text: bool
    """Whether there are strings in it, to be checked."""


_COMMANDS: dict[int, Command] = {}


def error_answer(request: Any, code: ServerError, message: str) -> BaseCommand:
    """What most requests are refused with."""
    return BaseCommand(
        type=BaseCommand.ERROR, error=Error(request_id=request.request_id, error=code, message=message)
    )


def command(
    type: BaseCommand.Type, *, refusal: Refusal | None = error_answer
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of commands of `type`."""
    # The protocol numbers the message of a command as the command.
    described = BaseCommand.DESCRIPTOR.fields_by_number[type]
    field = described.name

    def register(handler: Handler) -> Handler:
        assert type not in _COMMANDS or _COMMANDS[type].handler.__module__ == handler.__module__, field
        _COMMANDS[type] = Command(type, field, handler, refusal, has_text(described.message_type))
        return handler

    return register


def load_commands() -> dict[int, Command]:
    """Every command of this package, by type."""
    package = importlib.import_module("anabranch.server.pulsar")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"anabranch.server.pulsar.{module.name}")
    return dict(sorted(_COMMANDS.items()))
