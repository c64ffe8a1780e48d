"""The acknowledgements of ShareFetch and ShareAcknowledge: what they say, and carrying them out.

A batch of acknowledgements has one type for all of its records or one for each; runs of the same type are
taken together.  Batches are in order and do not overlap, or none of them counts.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from anabranch.base.errors import AnabranchError, Invalid
from anabranch.groups.share_state import ShareKey
from anabranch.server.share_sessions import Member, Place
from anabranch.subscriptions.share_partition import Ack, AckKind
from anabranch.subscriptions.share_partitions import SharePartitions

Acks = dict[Place, Any]
"""What came for each partition, as it came."""


def acks_in(topics: Iterable[Any]) -> Acks:
    """The partitions of a request that have acknowledgements."""
    return {
        (topic.topic_id or UUID(int=0), one.partition_index): one.acknowledgement_batches
        for topic in topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


def read_acks(batches: Sequence[Any], *, may_renew: bool) -> list[Ack]:
    """Invalid if they are not in order, or say what cannot be said."""
    acks: list[Ack] = []
    most = AckKind.RENEW if may_renew else AckKind.REJECT
    settled = 0
    for batch in batches:
        first, end, types = batch.first_offset, batch.last_offset + 1, batch.acknowledge_types
        if first < settled or end <= first:
            raise Invalid("acknowledgements are not in order")
        if len(types) != 1 and len(types) != end - first:
            raise Invalid(f"{len(types)} acknowledgements for {end - first} records")
        if min(types) < AckKind.GAP or max(types) > most:
            raise Invalid("there is no such type of acknowledgement")
        settled = end
        if len(types) == 1:
            acks.append(Ack(first, end, AckKind(types[0])))
            continue
        for kind, run in groupby(types):
            count = sum(1 for _ in run)
            acks.append(Ack(first, first + count, AckKind(kind)))
            first += count
    return acks


async def carry_out(
    shares: SharePartitions, member: Member, acks: Acks, *, may_renew: bool
) -> dict[Place, AnabranchError | OSError]:
    """Do what they say, durably; what went wrong, by partition."""
    failed: dict[Place, AnabranchError | OSError] = {}

    async def carry_out_one(place: Place, batches: Sequence[Any]) -> None:
        try:
            meant = read_acks(batches, may_renew=may_renew)
            live = await shares.open(key_of(member, place))
            await live.acknowledge(member[1], meant)
        except (AnabranchError, OSError) as error:
            failed[place] = error

    if len(acks) == 1:  # which needs no task
        ((place, batches),) = acks.items()
        await carry_out_one(place, batches)
    else:
        await asyncio.gather(*(carry_out_one(*one) for one in acks.items()))
    return failed


def key_of(member: Member, place: Place) -> ShareKey:
    return ShareKey(member[0], place[0], place[1])


def member_of(request: Any) -> Member:
    """Who asks.  Invalid if that is not said."""
    if not request.group_id or not request.member_id:
        raise Invalid("a share consumer says which group it is in and which member it is")
    return request.group_id, request.member_id


def places_in(topics: Iterable[Any]) -> list[Place]:
    """The partitions that a request names."""
    return [
        (topic.topic_id or UUID(int=0), one.partition_index) for topic in topics for one in topic.partitions
    ]
