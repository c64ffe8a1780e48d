"""Deleting a group: if it is empty it goes, with everything it has committed.

One that is a Pulsar subscription is not empty: what it has not read is kept for it.
"""

from collections.abc import Mapping

from anabranch.groups.effects import Effects, Token
from anabranch.groups.group import Group
from anabranch.groups.offsets import CommittedOffsets
from anabranch.wire.kafka.schema import ErrorCode


def delete_group(
    groups: Mapping[str, Group], offsets: CommittedOffsets, group_id: str, token: Token
) -> Effects:
    effects = Effects()
    group = groups.get(group_id)
    code = ErrorCode.none
    if group is None:
        code = ErrorCode.group_id_not_found
    elif not group.is_empty or offsets.has_subscription(group_id):
        code = ErrorCode.non_empty_group
    else:
        effects.records += offsets.tombstones(group_id)
        effects.records += group.tombstones()
        effects.each_for_itself()  # what a crash leaves of the group is asked for again
    effects.reply(token, {"group_id": group_id, "error_code": code})
    return effects
