"""Random ids in Kafka's form: a version 4 UUID, written as 22 characters of URL-safe base64.

Kafka never gives out an id that starts with '-', which command lines would take for an option.  The
ids it keeps for itself (0, 1 and other small numbers) are not of version 4, so they cannot come up.
"""

from random import Random
from uuid import UUID

from anabranch.base.ids import id_text


def random_id(chance: Random) -> UUID:
    while True:
        id = UUID(int=chance.getrandbits(128), version=4)
        if not id_text(id).startswith("-"):
            return id
