"""Masked and left-out values: no byte of them is written anywhere, the leavings of a killed run included."""

import signal

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PEOPLE = TableId("public", "people")
SALT = "saltThatNobodySees"
MASKS = {
    "column.exclude.list": "public.people.hidden",
    "column.mask.with.12.chars": "public.people.masked",
    "column.truncate.to.3.chars": "public.people.cut",
    f"column.mask.hash.v2.SHA-256.with.salt.{SALT}": "public.people.hashed",
}


def secrets(kind):
    return {name: f"{name}-clear-{kind}-text" for name in ("hidden", "masked", "cutXsecretX", "hashed")}


def insert(number, kind):
    texts = secrets(kind)
    values = ", ".join(f"'{texts[name]}'" for name in texts)
    return f"insert into people values ({number}, 'seen {kind}', {values});"


def test_no_clear_text_of_a_masked_column_is_written_anywhere(pg, program, tmp_path):
    database = pg.database("masks")
    pg.execute(
        database,
        "create table people (id int primary key, seen text, hidden text, masked text, cut text, hashed text);"
        "alter table people replica identity full;" + insert(1, "snapshot"),
    )
    file = write_properties(
        tmp_path / "masks.properties",
        pg.properties(
            database,
            **{
                "schema.include.list": "public",
                "wal2lake.lake.path": str(tmp_path / "written" / "lake"),
                "wal2lake.state.path": str(tmp_path / "written" / "state"),
                "wal2lake.freshness.seconds": "0",
                "wal2lake.quality.rule.never": "public.people: after.seen <> 'seen quarantine'",
                **MASKS,
            },
        ),
    )
    logs = [program.stream(file)]
    pg.execute(database, insert(2, "stream") + insert(3, "quarantine"))
    pg.execute(database, "update people set masked = 'masked-clear-update-text' where id = 1")
    logs.append(program.stream(file, failpoints.AFTER_SPOOL))
    assert logs[-1].returncode == -signal.SIGKILL, logs[-1].stderr
    spooled = list((tmp_path / "written" / "state").rglob("*.arrow"))
    assert spooled, "the killed run left its spool"
    assert_unseen(tmp_path / "written", logs, program)
    logs.append(program.stream(file))
    assert [done.returncode for done in logs] == [0, -signal.SIGKILL, 0], logs[-1].stderr
    assert_unseen(tmp_path / "written", logs, program)
    quarantined = tmp_path / "written" / "lake" / "test" / "__quarantine" / "public" / "people"
    assert len(rows(quarantined)) == 1
    found = rows(lake_path(load(file), PEOPLE), "select * from t order by id")
    assert [row["seen"] for row in found] == ["seen snapshot", "seen stream"]
    assert [(row["masked"], row["cut"]) for row in found] == [("*" * 12, "cut")] * 2
    assert "hidden" not in found[0]


def assert_unseen(folder, logs, program):
    """Parquet pages may be compressed: the values of every file are looked at as well as its bytes."""
    clear = [f"-clear-{kind}-text" for kind in ("snapshot", "stream", "quarantine", "update")] + [SALT]
    texts = [done.stdout + done.stderr for done in logs] + [program.spark_log.read_text(errors="replace")]
    for text in clear:
        assert not any(text in log for log in texts)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes() + opened(path)
        for text in clear:
            assert text.encode() not in content, f"{text} in {path.relative_to(folder)}"


def opened(path):
    """What a compressed file holds, as bytes."""
    if path.suffix != ".parquet":
        return b""
    import pyarrow.parquet

    return repr(pyarrow.parquet.ParquetFile(path).read().to_pylist()).encode()
