"""PING and PONG: both sides ask whether the other is still there.

That the broker asks, and hangs up on whoever does not answer, is the listener's (`listener.py`); any command
is as good an answer as PONG.
"""

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb
from anabranch.wire.pulsar.frames import write_frame

_PONG = write_frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.Pong()))


@command(pb.BaseCommand.PING, refusal=None)
def ping(request: pb.Ping, connection: PulsarConnection) -> None:
    connection.write((_PONG,))


@command(pb.BaseCommand.PONG, refusal=None)
def pong(request: pb.Pong, connection: PulsarConnection) -> None:
    """The connection has noted that something came."""
