"""Subject names: the subject of a topic's schemas is `orders-value`, as Kafka's users name that of values.

Partitions share their topic's, and so do the stored topic and the other of one name, as in Pulsar.  Where
both key and value have a schema, the key's is in `orders-key`.
"""

from anabranch.base.errors import InvalidTopicName
from anabranch.base.ids import TopicName, split_partition

_OF_KEYS, _OF_VALUES = "-key", "-value"


def subject_of(name: TopicName) -> str:
    whole = split_partition(name)[0]
    return TopicName(whole.tenant, whole.namespace, whole.local).kafka + _OF_VALUES


def stem_of(subject: str) -> str:
    """What the subjects of one topic's keys and values have in common."""
    return subject.removesuffix(_OF_KEYS if is_of_keys(subject) else _OF_VALUES)


def key_subject(subject: str) -> str:
    """The subject of the keys of the topic whose values' subject this is."""
    return stem_of(subject) + _OF_KEYS


def value_subject(subject: str) -> str:
    """The subject of the values of the topic whose keys' subject this is."""
    return stem_of(subject) + _OF_VALUES


def is_of_keys(subject: str) -> bool:
    return subject.endswith(_OF_KEYS)


def topic_of(subject: str) -> TopicName | None:
    """The topic whose keys or values have their schemas in a subject; None if it is no topic's."""
    stem = stem_of(subject)
    if stem == subject:
        return None
    try:
        return TopicName.from_kafka(stem)
    except InvalidTopicName:
        return None
