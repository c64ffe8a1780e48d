"""Registry listings for Kafka's clients: subjects, uses of schema ids, references.

Each goes through all subjects, and lets others run while it does.
"""

import asyncio
from collections.abc import AsyncIterator

from anabranch.schemas.documents import VersionDocument
from anabranch.schemas.errors import SubjectNotFound
from anabranch.schemas.subject_store import SubjectStore

DEFAULT_CONTEXT = "."
EVERY_CONTEXT = ":*:"
_BETWEEN_LOOKS = 50


class SubjectLists:
    def __init__(self, store: SubjectStore) -> None:
        self._store = store

    async def subjects(self, prefix: str, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """In order.  Of those that begin so; one is deleted if all its versions are."""
        found = []
        async for subject, versions in self._every(prefix):
            is_deleted = all(version.is_deleted for version in versions)
            if is_deleted if deleted_only else deleted or not is_deleted:
                found.append(subject)
        return found

    async def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        known = (await self._store.document(subject)).for_kafka
        if not any(deleted or deleted_only or not version.is_deleted for version in known):
            raise SubjectNotFound(f"Subject '{subject}' not found.")
        return [
            version.number + 1
            for version in known
            if (version.is_deleted if deleted_only else deleted or not version.is_deleted)
        ]

    async def uses(self, id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """The subjects and versions that have a schema."""
        return [
            (subject, version.number + 1)
            async for subject, versions in self._every("")
            for version in versions
            if version.schema == id and (deleted or not version.is_deleted)
        ]

    async def referring(self, subject: str, version: int, *, deleted: bool = False) -> list[int]:
        """The ids of schemas that refer to a version, as far as they are in a subject."""
        return (await self.references_to(subject, deleted=deleted)).get(version, [])

    async def references_to(self, subject: str, *, deleted: bool = False) -> dict[int, list[int]]:
        """The same of every version of a subject that is referred to."""
        used = {
            one.schema
            async for _, versions in self._every("")
            for one in versions
            if deleted or not one.is_deleted
        }
        found: dict[int, list[int]] = {}
        for count, id in enumerate(sorted(used)):
            if count % _BETWEEN_LOOKS == 0:
                await asyncio.sleep(0)
            schema = await self._store.schema(id)
            references = [] if schema is None else schema.references
            for version in {one.version for one in references if one.subject == subject}:
                found.setdefault(version, []).append(id)
        return found

    async def contexts(self) -> list[str]:
        """Subjects may be called `:.context:name`; that of the others is the default."""
        found = {DEFAULT_CONTEXT}
        async for subject, _ in self._every(""):
            if subject.startswith(":."):
                found.add(subject[1:].partition(":")[0])
        return sorted(found)

    async def _every(self, prefix: str) -> AsyncIterator[tuple[str, list[VersionDocument]]]:
        prefix = "" if prefix == EVERY_CONTEXT else prefix
        for count, subject in enumerate(sorted(await self._store.subjects())):
            if count % _BETWEEN_LOOKS == 0:
                await asyncio.sleep(0)
            if subject.startswith(prefix):
                versions = (await self._store.document(subject)).for_kafka
                if versions:
                    yield subject, versions
