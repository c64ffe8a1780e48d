"""Dead-letter options of share groups (KIP-1191): names and defaults are Kafka's.

A group names the topic; the topic must allow it (`errors.deadletterqueue.group.enable`), and the broker says
what such topics are called and whether it makes them.
"""

from dataclasses import dataclass

from anabranch.base.config import Kind, Option, option

DEAD_LETTER_OPTIONS: dict[str, Option] = {
    "dead_letter_topic": Option(
        "errors.deadletterqueue.topic.name",
        Kind.STRING,
        "",
        "The topic for records that the group has given up: rejected, or delivered as often as allowed.  "
        "Empty: they are set aside without a trace.",
        None,
        dynamic=True,
    ),
    "dead_letter_copies": Option(
        "errors.deadletterqueue.copy.record.enable",
        Kind.BOOLEAN,
        False,
        "Whether dead letters have the key and the value of the record, or only say which one it was.",
        None,
        dynamic=True,
    ),
}
"""What a group can be told and a broker cannot, by where DeadLetterConfig has it."""


@dataclass(frozen=True, kw_only=True)
class DeadLetterConfig:
    """Where share groups put what they have given up."""

    dead_letter_prefix: str = option(
        "errors.deadletterqueue.topic.name.prefix",
        Kind.STRING,
        "dlq.",
        None,
        "How the names of topics for dead letters of share groups begin.",
        dynamic=True,
    )
    dead_letter_creates: bool = option(
        "errors.deadletterqueue.auto.create.topics.enable",
        Kind.BOOLEAN,
        False,
        None,
        "Whether a topic for dead letters of a share group that is not there is made.",
        dynamic=True,
    )
    dead_letter_topic: str = ""
    dead_letter_copies: bool = False
