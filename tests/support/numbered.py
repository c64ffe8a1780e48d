"""A producer of confluent's that numbers its records unless it is told something that does not go with it.

One that does not, and is refused by a leader that resigns, sends again what the log may have: at least once.
Where leaders come and go, who counts records has to number them.
"""

from typing import Any

import confluent_kafka as ck

_SPEAKS_FOR_ITSELF = {
    "acks",
    "enable.idempotence",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "request.required.acks",
    "retries",
    "transactional.id",
}


class Numbered(ck.Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        numbers = {} if _SPEAKS_FOR_ITSELF & settings.keys() else {"enable.idempotence": True}
        super().__init__(numbers | settings)
