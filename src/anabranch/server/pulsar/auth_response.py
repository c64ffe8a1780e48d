"""AUTH_RESPONSE: a client's answer to an AUTH_CHALLENGE.  None is ever made, so it answers nothing."""

from anabranch.base.errors import Corrupt
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.AUTH_RESPONSE, refusal=None)
def auth_response(request: pb.AuthResponse, connection: PulsarConnection) -> None:
    raise Corrupt("AUTH_RESPONSE to a challenge that was not made")
