"""Names and properties that Pulsar clients give producers and consumers: kept, and so bounded."""

from collections.abc import Iterable

from anabranch.records.pulsar_metadata_pb2 import KeyValue
from anabranch.server.pulsar.errors import MetadataTooLarge, NameTooLong

_MAX_CHARACTERS = 1024  # Pulsar's maxConsumerMetadataSize
_MAX_NAME = 4096  # well beyond what clients put together of topic, subscription and consumer


def metadata_of(pairs: Iterable[KeyValue]) -> dict[str, str]:
    """MetadataTooLarge if it is too much to keep."""
    metadata = {pair.key: pair.value for pair in pairs}
    size = sum(len(key) + len(value) for key, value in metadata.items())
    if size > _MAX_CHARACTERS:
        raise MetadataTooLarge(f"the metadata has {size} characters, the limit is {_MAX_CHARACTERS}")
    return metadata


def name_of(what: str, text: str) -> str:
    """`text` as the name of `what`.  NameTooLong if it is too much to keep."""
    if len(text) > _MAX_NAME:
        raise NameTooLong(f"the name of a {what} may have {_MAX_NAME} characters, this has {len(text)}")
    return text
