"""A Spark session that has both: Spark's Kafka connector on its class path, and ours.

The connector's jars come from Maven, once, and are kept beside Kafka's (ANCHORS).
"""

import os
import subprocess
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.spark.session import session_builder

CONNECTOR = "4.2.0"  # the newest on Maven Central; no 4.3.0 was there
ANCHORS = Path(os.environ.get("ANCHORS", Path.home() / ".cache" / "anchors"))
JARS = ANCHORS / f"spark-kafka-{CONNECTOR}"
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def fetch_jars(folder: Path = JARS) -> None:
    """The connector's jars in `folder`, if they are not there yet."""
    if not any(folder.glob("spark-sql-kafka-*.jar")):
        command = ["mvn", "-q", "-B", "-f", str(Path(__file__).with_name("pom.xml"))]
        command += ["dependency:copy-dependencies", f"-Dconnector.version={CONNECTOR}"]
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, timeout=600)


def open_session(jars: Path = JARS) -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Plain `spark.jars` would load the connector in a child class loader of its own.
    builder = session_builder().master("local[2]").appName("bench")
    builder = builder.config("spark.driver.extraClassPath", f"{jars}/*")
    return builder.config(map=SETTINGS).getOrCreate()
