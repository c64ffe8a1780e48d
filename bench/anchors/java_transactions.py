"""Kafka's own `kafka-transactions` on Kafka and on ours: the same words must come out.

    python bench/anchors/java_transactions.py [--only abort] [--show]

Transactions in every state are looked at: one that was committed, one that was aborted, one that is open
(with partitions and a group's offsets), and one that hangs: records of a producer whose transaction nobody
knows, which no coordinator will ever end.  Brokers verify against that, so it is made on brokers that were
told not to.  Then the hanging one is found and aborted, and the open one terminated.
"""

import sys

from servers import ROOT
from side_by_side import AT, Act, Command, Lines, Stage, Step, main

sys.path.insert(0, str(ROOT / "tests" / "compat" / "clients"))
import raw
import raw_transactions

SETTINGS = {"transaction.partition.verification.enable": "false"}
BROKERS_OWN = {
    "Coordinator",
    "CoordinatorId",
    "ProducerId",
    "LastTimestamp",
    "StartTimeMs",
    "DurationMs",
    "TransactionStartTimeMs",
    "TransactionDurationMs",
    "Duration(min)",
}
TIMEOUT = {"transaction_timeout": 600_000}


def table(lines: Lines) -> Lines:
    """A table: its rows in any order, without the ids and times that are a broker's own."""
    header = next((line.split("\t") for line in lines if "ProducerId" in line), [])
    hidden = {at for at, name in enumerate(header) if name.strip() in BROKERS_OWN}
    rows = []
    for line in lines:
        cells = [",".join(sorted(cell.strip().split(","))) for cell in line.split("\t")]
        if len(cells) > 1 and "ProducerId" not in line:
            cells = ["…" if at in hidden else cell for at, cell in enumerate(cells)]
        rows.append(" | ".join(cells))
    return sorted(rows)


def transactions(name: str, arguments: str) -> Command:
    return Command(name, "TransactionsCommand", AT + arguments, shown=table)


class Scene:
    """The producers of one broker, by what they are in the middle of."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.broker = raw.Connection(stage.bootstrap)
        stage.held.callback(self.broker.close)
        raw.create_topic(self.broker, "payments", 2)
        raw.create_topic(self.broker, "receipts", 1)
        raw_transactions.find(self.broker, "clerks", 0)

    def producer(self, name: str) -> raw_transactions.Producer:
        producer = raw_transactions.Producer(self.broker, name)
        producer.introduce(**TIMEOUT)
        return producer

    def ended(self, name: str, *, commit: bool) -> None:
        producer = self.producer(name)
        producer.add(("payments", 0))
        accepted(producer.produce("payments", b"paid"))
        producer.end(commit=commit)
        raw_transactions.settled(self.broker, "payments")

    def open(self, name: str) -> None:
        producer = self.producer(name)
        producer.add(("payments", 0), ("payments", 1))
        accepted(producer.produce("payments", b"paid"))
        accepted(producer.produce("payments", b"paid", index=1))
        accepted(producer.add_offsets("clerks"))
        accepted(producer.commit_offset("clerks", "payments", 1))

    def hanging(self, name: str) -> None:
        """An hour old, and of nobody: its producer id was never introduced with a name."""
        producer = raw_transactions.Producer(self.broker, name)
        producer.producer_id, producer.epoch = raw.new_producer(self.broker), 0
        accepted(producer.produce("receipts", b"lost"))


def accepted(code: int) -> None:
    if code:
        raise RuntimeError(f"refused with code {code}")


def play(stage: Stage) -> None:
    scene = Scene(stage)
    scene.ended("payer-done", commit=True)
    scene.ended("payer-undone", commit=False)
    scene.open("payer-open")
    scene.hanging("payer-lost")


HANGING = "find-hanging --topic receipts --partition 0"
STEPS: tuple[Step, ...] = (
    transactions("list, none there", "list"),
    transactions("describe, none there", "describe --transactional-id payer-open"),
    Act("one committed, one aborted, one open, one hanging", play),
    transactions("list", "list"),
    transactions("list, long ones", "list --duration-filter 3600000"),
    transactions("list, by a pattern", "list --transactional-id-pattern payer-un.*"),
    transactions("list, by a bad pattern", "list --transactional-id-pattern ("),
    *(
        transactions(f"describe {name}", f"describe --transactional-id payer-{name}")
        for name in ("done", "undone", "open", "lost")
    ),
    transactions("producers of payments 0", "describe-producers --topic payments --partition 0"),
    transactions("producers of payments 1", "describe-producers --topic payments --partition 1"),
    transactions("producers of receipts", "describe-producers --topic receipts --partition 0"),
    transactions("hanging, one partition", HANGING),
    transactions("hanging, one topic", "find-hanging --topic receipts"),
    transactions("hanging, none here", "find-hanging --topic payments"),
    transactions("hanging, not so long", "find-hanging --topic receipts --max-transaction-timeout 600"),
    transactions("abort at a wrong offset", "abort --topic receipts --partition 0 --start-offset 7"),
    transactions("abort", "abort --topic receipts --partition 0 --start-offset 0"),
    transactions("abort again", "abort --topic receipts --partition 0 --start-offset 0"),
    transactions("producers after the abort", "describe-producers --topic receipts --partition 0"),
    transactions("hanging, after the abort", HANGING),
    transactions("abort an open one", "abort --topic payments --partition 1 --start-offset 0"),
    transactions("terminate", "forceTerminateTransaction --transactionalId payer-open"),
    transactions("describe terminated", "describe --transactional-id payer-open"),
    transactions("producers after the end", "describe-producers --topic payments --partition 0"),
    transactions("terminate again", "forceTerminateTransaction --transactionalId payer-open"),
    transactions("terminate what is not there", "forceTerminateTransaction --transactionalId payer-none"),
    transactions("list at the end", "list"),
)


if __name__ == "__main__":
    main(__doc__, STEPS, SETTINGS)
