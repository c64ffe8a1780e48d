"""CONNECT: who the client is and what it speaks; answered with CONNECTED.

The protocol's version is the lower of the two; ours is 21 (Pulsar 4.x).  The feature flags are those of what
is there, since clients use what they are told of.  There is no authentication yet: whatever a client brings
is let in, as Pulsar does where it is switched off.
"""

from anabranch import __version__
from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb

PROTOCOL_VERSION = 21
_VERSION_CHARACTERS = 256  # that are kept of what the client calls itself
_SERVER_VERSION = f"Pulsar Server 4.0 (Anabranch {__version__})"


@command(pb.BaseCommand.CONNECT, refusal=None)
def connect(request: pb.Connect, connection: PulsarConnection) -> None:
    connection.protocol_version = min(request.protocol_version, PROTOCOL_VERSION)
    connection.client_version = request.client_version[:_VERSION_CHARACTERS]
    connection.supports_partial_producers = request.feature_flags.supports_partial_producer
    connection.is_connected = True
    connection.send(
        pb.BaseCommand(
            type=pb.BaseCommand.CONNECTED,
            connected=pb.Connected(
                server_version=_SERVER_VERSION,
                protocol_version=connection.protocol_version,
                max_message_size=connection.services.config.current.policies.max_message_bytes,
                feature_flags=pb.FeatureFlags(
                    supports_topic_watchers=True,
                    supports_get_partitioned_metadata_without_auto_creation=True,
                ),
            ),
        )
    )
