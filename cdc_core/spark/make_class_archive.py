"""Makes the archive of classes (``class_archive``): ``python -m cdc_core.spark.make_class_archive``. Run by setup.

A Spark process does once what runs do (merges, deletion vectors, changes of columns, OPTIMIZE, VACUUM, Python tasks),
and Java writes the classes that it has loaded by then, 150 MB, when it ends. The file gets its name when it is
complete, so other processes never read a part of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_core.spark.class_archive import archive_in, sized
from cdc_core.spark.session import class_archive, get_session
from cdc_core.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 600
_TABLE = "(id BIGINT, a STRING, n DECIMAL(10,2), at TIMESTAMP, many ARRAY<INT>, kept MAP<STRING, STRING>) USING delta"
_ROWS = (
    "SELECT id, concat('a', id) a, CAST(id AS DECIMAL(10,2)) n, current_timestamp() at, array(1, 2) many, "
    "map('k', 'v') kept FROM range({0}, {1})"
)
_MERGE = (
    "MERGE INTO {0} t USING ({1}) s ON t.id = s.id AND t.id IN (1, 2, 3, 30) "
    "WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def main(arguments: Sequence[str] = ()) -> int:
    """Make the archive unless there is one; with ``train FOLDER OPTIONS`` be the process whose classes are archived."""
    if arguments and arguments[0] == "train":
        _train(Path(arguments[1]), arguments[2])
        return 0
    folder, name = class_archive()
    if name is None:
        print("No archive of classes: found no Java, or Delta's jars are not resolved.")
        return 1
    print(archive_in(folder, name) or _made(folder, name))
    return 0


def _made(target: Path, name: str) -> Path:
    with tempfile.TemporaryDirectory(prefix="classes-", dir=target) as folder:
        partial = Path(folder) / name
        options = f"-XX:ArchiveClassesAtExit={partial} -Xlog:cds=off -Xlog:cds+dynamic=off"
        command = [sys.executable, "-m", "cdc_core.spark.make_class_archive", "train", folder, options]
        subprocess.run(command, timeout=_SECONDS, check=True)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        return partial.replace(target / sized(name, partial.stat().st_size))


def _train(folder: Path, java_options: str) -> None:
    """Do once what runs do, and wait until Java has ended."""
    settings = {"spark.master": "local[2]", "spark.log.level": "OFF", "spark.driver.extraJavaOptions": java_options}
    spark = get_session(settings)
    _work(spark, folder)
    gateway: Any = spark.sparkContext._gateway
    process = gateway.proc
    spark.stop()
    process.stdin.close()
    process.wait(_SECONDS)


def _work(spark: SparkSession, folder: Path) -> None:
    table, file = f"delta.`{folder / 'table'}`", str(folder / "rows")
    spark.sql(f"CREATE TABLE {table} {_TABLE}")
    spark.sql(f"INSERT INTO {table} {_ROWS.format(0, 20)}")
    spark.sql(_ROWS.format(0, 40)).write.parquet(file)
    source = f"SELECT * FROM parquet.`{file}`"
    spark.sql(_MERGE.format(table, source))
    spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    spark.sql(_MERGE.format(table, source))
    spark.sql(f"DELETE FROM {table} WHERE id = 5")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN a TO b")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (c INT)")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN n TYPE DECIMAL(12,2)")
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"VACUUM {table}")
    spark.sql(f"DESCRIBE DETAIL {table}").collect()
    spark.sql(f"DESCRIBE HISTORY {table}").collect()
    spark.sql(f"SELECT * FROM {table} VERSION AS OF 1").toArrow()
    spark.sql(f"CREATE TABLE delta.`{folder / 'ordered'}` {_TABLE} CLUSTER BY (id)")
    run_tasks(spark, [[1], [2]], abs, "reading the classes of a Python task")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
