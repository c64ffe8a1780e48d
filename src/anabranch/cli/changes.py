"""Settings to change, as `--config NAME=VALUE` and `--unset NAME` say."""

from collections.abc import Sequence
from typing import Annotated

import typer

from anabranch.cli.failure import Misuse
from anabranch.cli.options import name_values

Set = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="Set this; repeatable.")
]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default; repeatable.")
]


def changes(config: Sequence[str] | None, unset: Sequence[str] | None) -> dict[str, str | None]:
    """What becomes of each setting, None for its default.  Misuse if one is to be both."""
    told: dict[str, str | None] = {**name_values(list(config or []), "--config")}
    for name in unset or []:
        if told.get(name) is not None:
            raise Misuse(f"{name} is to be set and unset")
        told[name] = None
    return told
