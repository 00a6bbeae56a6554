"""Names, statements and types as a user may write them: run as they are, where quoting is all that is needed."""

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

# A type like PostGIS's, whose arrays are separated by colons. Well-known binary of two points.
GEOMETRY = """
create type geometry;
create function geometry_in(cstring) returns geometry as 'textin' language internal strict immutable;
create function geometry_out(geometry) returns cstring as 'textout' language internal strict immutable;
create type geometry (input = geometry_in, output = geometry_out, like = text, delimiter = ':');
create table places (id int primary key, shape geometry[], boxes box[]);
insert into places values (1, array['{a}', '{b}']::geometry[], array['(1,1),(0,0)', '(2,2),(1,1)']::box[]),
    (2, array['{a}']::geometry[], '{{}}'), (9, null, null);
"""
A = "0101000000000000000000F03F0000000000000040"
B = "0101000000000000000000084000000000000010C0"


def test_names_statements_and_arrays_of_every_delimiter(pg, program, tmp_path):
    database = pg.database("written")
    pg.execute(database, GEOMETRY.format(a=A, b=B))
    override = "snapshot.select.statement.overrides"
    lake = {**lake_settings(tmp_path), "publication.name": r"a\b'c", "publication.autocreate.mode": "all_tables"}
    statement = "select * from places where id < 9; -- only some"
    file = write_properties(
        tmp_path / "written.properties",
        pg.properties(database, **lake, **{override: "public.places", f"{override}.public.places": statement}),
    )
    done = program.stream(file)
    assert done.returncode == 0, done.stderr
    pg.execute(database, "insert into places select id + 10, shape, boxes from places where id < 9")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr
    found = rows(lake_path(load(file), TableId("public", "places")), "select * from t order by id")
    assert [row["id"] for row in found] == [1, 2, 11, 12]
    two, one = ([bytes.fromhex(text) for text in texts] for texts in ([A, B], [A]))
    assert [row["shape"] for row in found] == [two, one, two, one]
    assert [row["boxes"] for row in found] == 2 * [["(1,1),(0,0)", "(2,2),(1,1)"], []]
    assert all(row["__rescued"] is None for row in found)


def test_what_a_run_needs_is_tried_before_it_begins_and_by_check(pg, program, tmp_path):
    database = pg.database("needs")
    pg.execute(database, "create table t (id int primary key); insert into t values (1)")
    slots = f"select count(*) from pg_replication_slots where database = '{database}'"

    def file(**more):
        settings = {name.replace("__", "."): text for name, text in more.items()}
        return write_properties(
            tmp_path / "needs.properties", pg.properties(database, **{**lake_settings(tmp_path), **settings})
        )

    channel = {"signal__enabled__channels": "source,kafka", "signal__kafka__bootstrap__servers": "127.0.0.1:1"}
    for settings, refusal in (
        ({**channel, "signal__consumer__session.timeout.ms": "x"}, "A property of signal.consumer.* is not valid"),
        ({"converters": "isbn", "isbn__type": "com.acme.Isbn"}, "converters names the Java class of isbn"),
    ):
        checked = program.run("check", file(**settings))
        assert checked.returncode == 1 and f": {refusal}" in checked.stdout, checked.stdout
        for command, more in (("run", ()), ("envelopes", ("--output", str(tmp_path / "lines")))):
            done = program.run(command, file(**settings), *more)
            assert done.returncode == 1 and refusal in done.stderr, done.stderr
    notified = {"notification__enabled__channels": "sink,jmx", "notification__sink__topic__name": "n"}
    checked = program.run("check", file(**channel, **notified))
    assert checked.returncode == 0 and "warn signals: The topic of signals" in checked.stdout, checked.stdout
    assert "topic.name" not in checked.stdout.replace("notification.sink.topic.name.\n", ""), checked.stdout
    avro = {"value__converter": "io.confluent.connect.avro.AvroConverter"}
    registry = {"value__converter__schema__registry__url": "http://127.0.0.1:1"}
    done = program.run("envelopes", file(**avro, **registry), "--output", str(tmp_path / "lines"))
    assert done.returncode == 1 and "The schema registry at http://127.0.0.1:1 did not answer" in done.stderr
    assert pg.execute(database, slots)[0][0] == 0


def test_documented_symptoms_are_reported(pg, program, tmp_path):
    database = pg.database("said")
    pg.execute(
        database,
        "create table t (id int primary key, street text); insert into t values (1, 'a'), (2, 'b');"
        "create table large (id int primary key, v text);"
        "insert into large select g, md5(g || 'a') || md5(g || 'b') from generate_series(1, 150000) g",
    )
    file = write_properties(tmp_path / "said.properties", pg.properties(database, **lake_settings(tmp_path)))
    assert program.stream(file).returncode == 0  # the state folder is there from now on
    with program.started("run", file, "-v", own_java=True) as running:
        running.wait_for("streaming")
        other = program.run("run", file, "--until-idle", "1")
        assert other.returncode == 1
        assert f"is using slot {database}: process {running.process.pid} on host" in other.stderr, other.stderr
        sent = program.run("signal", file, "execute-snapshot", "--data", '{"data-collections": ["public.t"]}')
        assert "sent through channel in-process: a streaming run reads it within 1 s" in sent.stderr, sent.stderr
        running.wait_for("An incremental snapshot of public.t begins.")
        running.wait_for("public.t: the incremental snapshot is complete, 2 rows.")
        pg.execute(database, "alter table t rename street to street_line; insert into t values (3, 'c')")
        running.wait_for("public.t: column street renamed to street_line")
        pg.execute(database, "update large set v = 'x' where id % 50000 = 0")
        running.wait_for("public.large: Delta table feature deletionVectors was enabled; Spark, polars 2.1 and SQL")
        assert running.end(2) == 0, running.said()
        assert "EOFError" not in running.said(), running.said()
