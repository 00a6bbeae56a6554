"""The log store for S3 as Spark's own compiler makes it, without a store to talk to (that is tests/stores)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_core.lake.delta.storage import LOG_STORE
from cdc_core.spark.s3_log_store import CLASS, install

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def store(spark) -> Any:
    """One on Hadoop's configuration, as Delta makes it."""
    install(spark.sparkContext)
    jvm = spark.sparkContext._jvm
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    made = jvm.java.lang.Class.forName(CLASS, False, loader)
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = spark.sparkContext._jsc.hadoopConfiguration()
    return made.getConstructors()[0].newInstance(arguments)


def lines(spark: Any, *texts: str) -> Any:
    found = spark.sparkContext._jvm.java.util.ArrayList()
    for text in texts:
        found.add(text)
    return found.iterator()


def test_the_setting_names_the_class_and_it_is_a_log_store_of_deltas(spark, store):
    assert LOG_STORE == ("spark.delta.logStore.s3a.impl", CLASS)
    assert store.getClass().getSuperclass().getSuperclass().getName() == "io.delta.storage.LogStore"
    install(spark.sparkContext)
    again = spark.sparkContext._jvm.java.lang.Class.forName(CLASS, False, store.getClass().getClassLoader())
    assert again.equals(store.getClass()), "it is made once for a JVM"


def test_the_jar_is_removed_once_the_class_is_loaded(store):
    (place,) = [url for url in store.getClass().getClassLoader().getURLs() if "wal2lake-jar-" in url.toString()]
    assert not Path(place.getPath()).parent.exists()


def test_lines_written_are_read_and_no_half_of_them_is_seen(spark, store, tmp_path):
    jvm, conf = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}/_last_checkpoint")
    store.write(path, lines(spark, '{"a":1}', "é"), True, conf)
    store.write(path, lines(spark, '{"a":2}', "ü"), True, conf)
    assert (tmp_path / "_last_checkpoint").read_text(encoding="utf-8") == '{"a":2}\nü\n'
    assert store.isPartialWriteVisible(path, conf) is False


def test_a_file_system_without_conditional_puts_is_refused(spark, store, tmp_path):
    """Else commits of two writers at once would overwrite each other in silence."""
    jvm, conf = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    entry = jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}/00000000000000000000.json")
    with pytest.raises(Exception, match=r"fs\.option\.create\.conditional\.overwrite"):
        store.write(entry, lines(spark, "first"), False, conf)
    assert not list(tmp_path.iterdir())
