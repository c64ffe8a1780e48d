"""Our broker with acknowledgements that come late, as those of followers do.

It has a follower, made up, that gets everything so much later: the watermark lags, nothing else differs.

    python -P bench/path/late_acks.py MILLISECONDS .venv/bin/anabranch standalone ...
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from anabranch.cli import serving  # noqa: E402
from anabranch.cli.main import main  # noqa: E402
from anabranch.node import Node  # noqa: E402
from tests.support.acknowledgements import Follower  # noqa: E402


def wrapper(delay_ms: float) -> tuple[str, ...]:
    """What stands before the broker's command to have it so."""
    return (sys.executable, "-P", str(Path(__file__).resolve()), str(delay_ms))


class LateNode(Node):
    delay_s = 0.0

    async def start(self) -> None:
        await super().start()
        if self.delay_s:
            Follower(self.parts.host, self.delay_s)


if __name__ == "__main__":
    LateNode.delay_s = float(sys.argv[1]) / 1000
    setattr(serving, "Node", LateNode)  # noqa: B010  a class, which mypy would not have assigned
    sys.exit(main(sys.argv[3:]))
