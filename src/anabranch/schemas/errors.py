"""Registry errors: what can be wrong with a schema, a subject, or what is asked of them."""

from anabranch.base.errors import Invalid, NotFound


class InvalidSchema(Invalid):
    """It is none of the type that it claims to be, or larger than we look at."""


class SchemaTooLarge(InvalidSchema): ...


class IncompatibleSchema(Invalid):
    """It does not go with what the subject has; `told` is why, one line per difference."""

    def __init__(self, message: str, told: list[str] | None = None) -> None:
        super().__init__(message)
        self.told = told if told is not None else [message]


class LibraryMissing(Invalid):
    """Schemas of this type are looked at by a library that is not installed."""


class SubjectNotFound(NotFound): ...


class VersionNotFound(NotFound): ...


class SchemaNotFound(NotFound): ...


class LevelNotSet(NotFound):
    """A subject has no level of its own."""


class ModeNotSet(NotFound):
    """A subject has no mode of its own."""


class SubjectDeleted(NotFound):
    """It was deleted, and can only be deleted for good now."""


class SubjectNotDeleted(NotFound):
    """What is deleted for good must have been deleted before."""


class VersionDeleted(NotFound): ...


class VersionNotDeleted(NotFound): ...


class InvalidVersion(Invalid): ...


class InvalidSubject(Invalid): ...


class InvalidLevel(Invalid): ...


class InvalidMode(Invalid): ...


class NotPermitted(Invalid):
    """The mode of the subject forbids it, or an id is taken."""


class Referenced(Invalid):
    """Other schemas refer to it."""
