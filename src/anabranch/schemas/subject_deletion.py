"""Subject deletion, as Kafka's users know it: first soft, then permanent.

    a version       deleted: it is not found unless asked for; its id still is
    a subject       all its versions; its settings are gone, even if it is registered again
    permanent       only what has been soft-deleted before

What others refer to stays.
"""

import msgspec

from anabranch.schemas.documents import SubjectDocument, VersionDocument
from anabranch.schemas.errors import (
    Referenced,
    SubjectDeleted,
    SubjectNotDeleted,
    SubjectNotFound,
    VersionDeleted,
    VersionNotDeleted,
    VersionNotFound,
)
from anabranch.schemas.modes import check_writable
from anabranch.schemas.references import LATEST
from anabranch.schemas.subject_lists import SubjectLists
from anabranch.schemas.subject_store import SubjectStore


class SubjectDeletion:
    def __init__(self, store: SubjectStore) -> None:
        self._store = store
        self._lists = SubjectLists(store)

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """The versions that this deleted."""
        await check_writable(self._store, subject)
        async with self._store.turn(subject):
            document = await self._store.document(subject)
            known = document.for_kafka
            if not known:
                raise SubjectNotFound(f"Subject '{subject}' not found.")
            living = [version for version in known if not version.is_deleted]
            if permanent and living:
                raise SubjectNotDeleted(
                    f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
            if not permanent and not living:
                raise SubjectDeleted(
                    f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
                )
            gone = known if permanent else living
            await self._check_unreferenced(subject, gone, permanent, {version.schema for version in known})
            await self._drop(subject, gone, permanent)
            if not permanent:
                await self._store.forget_settings(subject)
            return [version.number + 1 for version in gone]

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """The version that this deleted; LATEST is the last there is."""
        await check_writable(self._store, subject)
        async with self._store.turn(subject):
            known = (await self._store.document(subject)).for_kafka
            living = [one for one in known if not one.is_deleted]
            if not known or (not permanent and not living):
                raise SubjectNotFound(f"Subject '{subject}' not found.")
            if version == LATEST:
                version = (living or known)[-1].number + 1
            found = next((one for one in known if one.number + 1 == version), None)
            if found is None:
                raise VersionNotFound(f"Version {version} not found.")
            if permanent and not found.is_deleted:
                raise VersionNotDeleted(
                    f"Subject '{subject}' Version {version} was not deleted first before being "
                    "permanently deleted"
                )
            if not permanent and found.is_deleted:
                raise VersionDeleted(
                    f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete "
                    "permanently"
                )
            await self._check_unreferenced(subject, [found], permanent, set())
            await self._drop(subject, [found], permanent)
            return version

    async def _check_unreferenced(
        self, subject: str, gone: list[VersionDocument], permanent: bool, own: set[int]
    ) -> None:
        referring = await self._lists.references_to(subject, deleted=permanent)
        for number in sorted(version.number + 1 for version in gone):
            if set(referring.get(number, ())) - own:
                raise Referenced(f"One or more references exist to version {number} of subject {subject}")

    async def _drop(self, subject: str, gone: list[VersionDocument], permanent: bool) -> None:
        document, stored = await self._store.read(subject)
        numbers = {version.number for version in gone}
        if permanent:
            left = [version for version in document.versions if version.number not in numbers]
        else:
            left = [
                msgspec.structs.replace(version, is_deleted=True) if version.number in numbers else version
                for version in document.versions
            ]
        if left:
            changed = SubjectDocument(left, document.next, document.topic)
            await self._store.write(subject, changed, stored)
        else:
            await self._store.remove(subject)
