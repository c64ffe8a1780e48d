"""A Spark Connect server from PySpark's own jars, in a process of its own.

with ConnectServer(folder) as server:
    spark = session_builder().remote(server.url).getOrCreate()
"""

from pathlib import Path

from tests.support.process_session import ProcessSession, Served
from tests.support.spark_cluster import said, spark_environment, spark_home

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


class ConnectServer(Served):
    def __init__(self, folder: Path) -> None:
        command = [str(spark_home() / "bin" / "spark-submit"), "--class", _CLASS, "--master", "local[2]"]
        for name, value in _SETTINGS.items():
            command += ["--conf", f"{name}={value}"]
        environment = {**spark_environment(), "SPARK_DAEMON_MEMORY": "1g"}
        self._process = ProcessSession([*command, "spark-internal"], folder / "connect.log", environment)
        self.url = ""

    def start(self) -> None:
        self._process.start()
        self.url = "sc://" + said(self._process, r"Connect server started at: (\S+:\d+)")

    def stop(self) -> None:
        self._process.kill()
