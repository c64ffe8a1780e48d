"""Commit messages of write tasks, in a module of their own: a driver that only commits loads little."""

from pyspark.sql.datasource import WriterCommitMessage

from anabranch.client.destinations import TopicPartition
from anabranch.client.transactions import Transaction


class Written(WriterCommitMessage):
    """What a task tells the driver: the transaction to be ended, if there is one, and where it wrote."""

    def __init__(self, transaction: Transaction | None, partition: TopicPartition | None, rows: int) -> None:
        self.transaction = transaction
        self.partition = partition
        self.rows = rows
