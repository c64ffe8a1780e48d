"""A pipeline for tests: numbers, some of them none, into a table, a sum, and a copy of the topic."""

import json
from pathlib import Path

from confluent_kafka import Producer

from anabranch.pipelines.project import Project, create, load

RECORDS = 600
BAD = {
    "torn": b'{"number": 1',
    "no number": b"{}",
    "negative": b'{"number": -5}',
    "text": b'{"number": "many"}',
}
DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from anabranch import pipelines as ab

spark = SparkSession.active()
SLOWLY = {"maxOffsetsPerTrigger": "400"}

@ab.table(dead_letters="dead")
@ab.expect("is a number", "number is not null")
@ab.expect("is positive", "number >= 0")
def numbers():
    return ab.read_topic("counted", "number bigint", SLOWLY)

ab.topic_view("numbers_again", topic="counted", options=SLOWLY)
ab.topic_sink("copy")

@dp.append_flow(target="copy", name="copying")
def copying():
    return spark.readStream.table("numbers_again").select("key", "value")
"""
IN_SQL = """
CREATE STREAMING TABLE offsets AS SELECT `partition`, `offset` FROM STREAM(numbers_again);
CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS count, sum(number) AS sum FROM numbers;
"""


def numbers_project(folder: Path) -> Project:
    made = create(folder, example=False)
    for file in made.files():
        file.unlink()
    (folder / "transformations" / "numbers.py").write_text(DEFINITIONS)
    (folder / "transformations" / "sums.sql").write_text(IN_SQL)
    return load(made.spec)


def fill(bootstrap: str, first: int, last: int, topic: str = "counted") -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, last):
        producer.produce(topic, json.dumps({"number": number}), partition=number % 2)
    for name, value in BAD.items():
        producer.produce(topic, value, key=name, headers={"from": b"test"}, partition=0)
    assert producer.flush(30) == 0
