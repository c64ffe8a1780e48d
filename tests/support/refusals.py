"""A disk, or whatever else, that refuses a call now and then."""

import errno
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def refused(code: int = errno.EIO) -> Callable[..., None]:
    """A call that fails with `code`."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def refused_after(calls: int, call: Callable[P, T]) -> Callable[P, T]:
    """`call`, which fails with EIO when it has been called so many times."""
    left = calls

    def maybe(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal left
        if not left:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left -= 1
        return call(*args, **kwargs)

    return maybe
