"""Names and values that a client gives its producer or consumer, kept for the statistics."""

from collections.abc import Iterable

from anabranch.records.pulsar_metadata_pb2 import KeyValue
from anabranch.server.pulsar.errors import MetadataTooLarge

_MAX_CHARACTERS = 1024  # Pulsar's maxConsumerMetadataSize


def metadata_of(pairs: Iterable[KeyValue]) -> dict[str, str]:
    """MetadataTooLarge if it is too much to keep."""
    metadata = {pair.key: pair.value for pair in pairs}
    size = sum(len(key) + len(value) for key, value in metadata.items())
    if size > _MAX_CHARACTERS:
        raise MetadataTooLarge(f"the metadata has {size} characters, the limit is {_MAX_CHARACTERS}")
    return metadata
