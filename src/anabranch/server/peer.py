"""Peer: the other end of a connection, as far as it has said who it is, and its lanes."""

from anabranch.server.lanes import Lanes


class Peer:
    """`software_name` and `software_version` come with ApiVersions, and may never come."""

    __slots__ = ("address", "is_gone", "lanes", "port", "software_name", "software_version")

    def __init__(self, address: str | None = None, port: int | None = None) -> None:
        self.address = address
        self.port = port
        self.is_gone = False
        self.lanes = Lanes()
        self.software_name: str | None = None
        self.software_version: str | None = None
