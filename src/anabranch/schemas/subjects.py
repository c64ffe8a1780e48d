"""Which subject a topic's schemas are in: `orders-value`, as Kafka's users name that of a topic's values.

Partitions share their topic's, and so do the stored topic and the other of one name, as in Pulsar.
"""

from anabranch.base.ids import TopicName, split_partition

_OF_VALUES = "-value"


def subject_of(name: TopicName) -> str:
    whole = split_partition(name)[0]
    return TopicName(whole.tenant, whole.namespace, whole.local).kafka + _OF_VALUES
