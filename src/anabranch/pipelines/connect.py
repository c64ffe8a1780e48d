"""A Spark Connect session for a run: a driver of our own, or a server elsewhere.

    with driver("local[*]", settings, log) as (spark, jvm): …     it ends with us, however we end
    with server("sc://host:15002", settings) as (spark, fixed): …

Declarative pipelines live in a Connect server.  The driver has one in it, on a port of its own choice that is
open to this machine only and asks for a secret that only we have.  Whatever Spark and its workers have to say
goes to `log`, so that the terminal is ours.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from anabranch.base.errors import Invalid, Unavailable
from anabranch.base.java import with_java
from anabranch.spark.interpreter import with_interpreter

SETTINGS = {"spark.sql.session.timeZone": "UTC"}
_DRIVER = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # Workers start slowly where many do at once.
    "spark.python.authenticate.socketTimeout": "60s",
}
_PORT = 15002
_KNOCK_S = 5.0
_DYING_S = 2.0
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


class SparkUnavailable(Unavailable):
    """There is no Spark where it was looked for."""


def driver_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of a project, and what our driver needs."""
    ours = _DRIVER["spark.plugins"]
    others = [one.strip() for one in settings.get("spark.plugins", "").split(",")]
    plugins = ",".join([*(one for one in others if one not in ("", ours)), ours])
    return {**_QUIET, **SETTINGS, **settings, **_DRIVER, "spark.plugins": plugins}


@contextmanager
def driver(master: str, settings: Mapping[str, str], log: Path) -> Iterator[tuple[Any, "Jvm"]]:
    """A session on a driver of our own, and its JVM.  Invalid if there is no Java that is new enough."""
    with_java()
    with_interpreter()
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault(_TOKEN, secrets.token_hex(16))
    with _stderr_to(log):
        from pyspark import SparkConf, SparkContext

        given = {**driver_settings(settings), "spark.master": master}
        conf = SparkConf().setAll(list(given.items())).setIfMissing("spark.app.name", "anabranch pipeline")
        try:
            context = SparkContext(conf=conf)
        except Exception as error:  # those of the bridge to the JVM are not PySpark's, and have no name there
            raise SparkUnavailable(
                f"Spark does not start on {master}: {_first_line(error)}; its log is {log}"
            ) from error
        assert context._gateway is not None, "a context that is there was reached through one"
        jvm = Jvm(context._jvm, context._gateway.proc)
        try:
            service = "org.apache.spark.sql.connect.service.SparkConnectService$"
            port = getattr(getattr(jvm.classes, service), "MODULE$").localPort()
            with _connected(f"sc://localhost:{port}") as spark:
                _give_up_with(jvm, spark.client)
                yield spark, jvm
        finally:
            with jvm.unless_gone():
                context.stop()


@contextmanager
def server(remote: str, settings: Mapping[str, str]) -> Iterator[tuple[Any, list[str]]]:
    """A session on a server that is there, and those of `settings` that are its driver's to have."""
    _knock(remote)
    with _connected(remote) as spark:
        fixed = [name for name in settings if not spark.conf.isModifiable(name)]
        for name, value in {**SETTINGS, **settings}.items():
            if name not in fixed:
                spark.conf.set(name, value)
        yield spark, fixed


class Jvm:
    """That of a driver of ours: its `classes`, and the process it is, unless somebody else has started it."""

    def __init__(self, classes: Any, process: "subprocess.Popen[Any] | None") -> None:
        self.classes = classes
        self._process = process

    def ended(self, within_s: float = 0.0) -> str | None:
        """How it has come to its end; None if it has not, or nobody knows."""
        if self._process is None:
            return None
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"its exit code is {code}"

    @contextmanager
    def unless_gone(self) -> Iterator[None]:
        """What is asked of it at the end, and need not be done by one that is no more."""
        try:
            yield
        except Exception:  # those of the bridge to the JVM have no name in PySpark
            if self.ended(_DYING_S) is None:
                raise


def _give_up_with(jvm: Jvm, client: Any) -> None:
    """Questions to a driver fail when it is no more.

    The client would try again and again for ten minutes, as with a server that may come back.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    class WhileItLives(DefaultPolicy):
        def can_retry(self, e: BaseException) -> bool:
            if how := jvm.ended():
                raise SparkUnavailable(f"Spark's driver has ended in the middle of its work: {how}") from e
            return bool(super().can_retry(e))

    client.set_retry_policies([WhileItLives()])


def _knock(remote: str) -> None:
    """The client would try again and again for minutes."""
    address = urlsplit(remote)
    if address.scheme != "sc" or not address.hostname:
        raise Invalid(f"{remote} is not the address of a Spark Connect server, such as sc://host:{_PORT}")
    try:
        socket.create_connection((address.hostname, address.port or _PORT), _KNOCK_S).close()
    except OSError as error:
        raise SparkUnavailable(f"no Spark Connect server answers at {remote}: {error}") from None


@contextmanager
def _connected(remote: str) -> Iterator[Any]:
    # PySpark's functions look here to know which of its two APIs they belong to.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.session import SparkSession

    try:
        spark = SparkSession.builder.remote(remote).getOrCreate()
    except PySparkException as error:
        raise SparkUnavailable(
            f"no Spark Connect server answers at {remote}: {_first_line(error)}"
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """File descriptor 2, which the JVM and its workers inherit, is `log` for a while; `sys.stderr` is not."""
    log.parent.mkdir(parents=True, exist_ok=True)
    before, python = os.dup(2), sys.stderr
    with log.open("w", encoding="utf-8") as written:
        os.dup2(written.fileno(), 2)
        sys.stderr = os.fdopen(os.dup(before), "w", buffering=1)
        try:
            yield
        finally:
            sys.stderr.close()
            sys.stderr = python
            os.dup2(before, 2)
            os.close(before)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
