"""Schema registry errors, as Kafka's users know them: numbers that begin with the HTTP status."""

from anabranch.admin.errors import Refused, reason_of, status_of
from anabranch.admin.routes import Manner
from anabranch.base.errors import TooLarge, Unavailable
from anabranch.schemas import errors

_CODES: dict[type[BaseException], int] = {
    errors.SubjectNotFound: 40401,
    errors.VersionNotFound: 40402,
    errors.SchemaNotFound: 40403,
    errors.SubjectDeleted: 40404,
    errors.SubjectNotDeleted: 40405,
    errors.VersionDeleted: 40406,
    errors.VersionNotDeleted: 40407,
    errors.LevelNotSet: 40408,
    errors.ModeNotSet: 40409,
    errors.IncompatibleSchema: 409,
    errors.InvalidSchema: 42201,
    errors.LibraryMissing: 42201,
    errors.InvalidVersion: 42202,
    errors.InvalidLevel: 42203,
    errors.InvalidMode: 42204,
    errors.NotPermitted: 42205,
    errors.Referenced: 42206,
    errors.InvalidSubject: 42208,
    errors.SchemaTooLarge: 42209,
    TooLarge: 42209,
    Unavailable: 50002,
}
_STORE_FAILED = 50001


def _refusal(error: BaseException) -> tuple[int, object]:
    code = _code(error)
    status = code if code < 1000 else code // 100
    return status, {"error_code": code, "message": reason_of(error)}


def _code(error: BaseException) -> int:
    if isinstance(error, Refused):
        return error.status
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    status = status_of(error)
    return _STORE_FAILED if status >= 500 else 422 if status == 412 else status


MANNER = Manner("application/vnd.schemaregistry.v1+json", _refusal)
