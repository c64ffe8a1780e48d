"""Pulsar's transactions: not here.  Each request is refused.

That is what a broker of Pulsar's does where `transactionCoordinatorEnabled` is off, which is its default.
"""

from typing import Any

from anabranch.server.pulsar.connection import PulsarConnection
from anabranch.server.pulsar.errors import NoTransactions
from anabranch.server.pulsar.registry import command
from anabranch.wire.pulsar import commands_pb2 as pb


@command(pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST)
@command(pb.BaseCommand.NEW_TXN)
@command(pb.BaseCommand.ADD_PARTITION_TO_TXN)
@command(pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN)
@command(pb.BaseCommand.END_TXN)
def refuse(request: Any, connection: PulsarConnection) -> None:
    raise NoTransactions
