"""Config resources: what can be configured, numbered as ConfigResource types in Kafka's protocol."""

from enum import IntEnum


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
