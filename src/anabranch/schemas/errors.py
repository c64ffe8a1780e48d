"""What can be wrong with a schema."""

from anabranch.base.errors import Invalid


class InvalidSchema(Invalid):
    """It is none of the type that it claims to be, or larger than we look at."""


class IncompatibleSchema(Invalid):
    """It does not go with what the subject has."""


class LibraryMissing(Invalid):
    """Schemas of this type are looked at by a library that is not installed."""
