"""A real query, and a real write, over TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jsonbus.tls.certificate import ServerCertificate
from tests.certificates import Authority
from tests.spark.queries import read_stream, run_available, why_it_fails
from tests.spark_bridge.served_log import ServedLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_and_a_write_need_the_right_authority(
    spark: SparkSession, open_log: Callable[..., ServedLog], tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    served = open_log(certificate=ServerCertificate(*authority.issue()))
    served.publish(range(100))
    options = {"tls": "true", "tlsCa": str(authority.path)}
    rows, _ = run_available(read_stream(spark, served.address, **options), tmp_path / "right")
    assert sorted(int(row.value) for row in rows) == list(range(100))

    wrong = read_stream(spark, served.address, tls="true", tlsCa=str(other.path))
    reason = why_it_fails(wrong, tmp_path / "wrong")
    assert f"the certificate of the bridge at {served.address} is not trusted" in reason
    reason = why_it_fails(read_stream(spark, served.address), tmp_path / "plain")
    assert "it speaks TLS: set the option tls to true" in reason

    alarm = spark.createDataFrame([("alarms/attic", "31")], "topic STRING, value STRING")
    writer = alarm.write.format("jsonbus").option("bridge", served.address).mode("append")
    writer.options(**options).save()
    assert served.published == [("alarms/attic", 31)]
