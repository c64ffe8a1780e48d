"""Registry documents: what the schema registry keeps in the metadata store.

    /schemas/subjects/<subject>          SubjectDocument: the versions
    /schemas/definitions/<sha-256>       Definition, as a Pulsar client brought it; never changed
    /schemas/ids/s-0000000003            Schema, as a Kafka client did; never changed.  Its id is 4
    /schemas/guids/<128 bits in hex>     IdDocument: under which id a schema is kept, once
    /schemas/settings/...                SettingsDocument: of one subject, or of all that have none

A version belongs to one subject, and is for both kinds of clients if its type exists for both, else for one.
Pulsar's clients count versions from 0, Kafka's count the same ones from 1.
"""

import msgspec


class VersionDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    number: int
    created_ms: int
    definition: str = ""  # empty: not for Pulsar's clients
    form: str = ""  # the same for what means the same to Pulsar's clients
    schema: int = 0  # 0: not for Kafka's clients
    is_deleted: bool = False


class SubjectDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    versions: list[VersionDocument] = []
    next: int = 0
    topic: str = ""  # it was made by the clients of this one, and goes with it

    @property
    def for_pulsar(self) -> list[VersionDocument]:
        """Those that Pulsar's clients go by: not deleted."""
        return [version for version in self.versions if version.definition and not version.is_deleted]

    @property
    def for_kafka(self) -> list[VersionDocument]:
        """Those that Kafka's clients may know of, deleted ones too."""
        return [version for version in self.versions if version.schema]

    def with_new(self, version: VersionDocument) -> "SubjectDocument":
        """With another version, whose number may leave a gap."""
        known = [other for other in self.versions if other.number != version.number]
        versions = sorted([*known, version], key=lambda one: one.number)
        return SubjectDocument(versions, max(self.next, version.number + 1), self.topic)


class IdDocument(msgspec.Struct, frozen=True):
    id: int


class SettingsDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """None: as for all subjects; there, as by default."""

    level: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    group: str | None = None
    policy: str | None = None
    mode: str | None = None

    @property
    def has_config(self) -> bool:
        return msgspec.structs.replace(self, mode=None) != NO_SETTINGS


NO_SETTINGS = SettingsDocument()
