"""What a real server streams, read by the vectorised decoder and by the plain one."""

import contextlib
import struct

import pytest

from cdc_core.decode.copy_text import decode_copy
from cdc_core.decode.pgoutput import StreamState, sort_segment
from cdc_core.decode.segment import Segment
from tests.support import plain_pgoutput as plain
from tests.support.decode_compare import assert_same, table_of

pytestmark = pytest.mark.postgres

TABLES = """
create schema shop;
create type shop.mood as enum ('fine', 'so so');
create table shop.orders (id int primary key, note text, at timestamptz, paid numeric(12, 2), how shop.mood);
create table shop.big (id int primary key, small int, big text);
alter table shop.big alter column big set storage external;
create table shop.whole (id int primary key, small int, big text, list text[]);
alter table shop.whole replica identity full;
alter table shop.whole alter column big set storage external;
create table shop.keyless (a int, b text);
create table shop."Odd näme" (" c.1" text primary key);
create table shop.parts (id int, v text, primary key (id)) partition by range (id);
create table shop.parts_1 partition of shop.parts for values from (0) to (100);
create table shop.parts_2 partition of shop.parts for values from (100) to (200);
"""
CHANGES = r"""
insert into shop.orders select n, case n % 3 when 0 then null when 1 then '' else 'tab' || chr(9) || '\é' || n end,
    now(), n / 7.0, 'so so' from generate_series(1, 700) n
insert into shop.big select n, n, repeat('long ' || n, 2000) from generate_series(1, 3) n
insert into shop.whole select n, n, repeat('long ' || n, 2000), array['a', null, 'é"'] from generate_series(1, 3) n
update shop.big set small = small + 1
update shop.big set big = 'short' where id = 2
update shop.big set id = 12 where id = 1
update shop.whole set small = small + 1
update shop.whole set id = 12 where id = 1
delete from shop.whole where id = 2
update shop.orders set note = null where id < 10
update shop.orders set id = id + 1000 where id > 690
delete from shop.orders where id % 5 = 0
insert into shop.keyless values (1, 'x'), (1, 'x'), (null, null)
insert into shop."Odd näme" values ('ä'), ('')
insert into shop.parts values (1, 'a'), (150, 'b')
update shop.parts set id = 120 where id = 1
select pg_logical_emit_message(true, 'prefix é', 'in a transaction')
select pg_logical_emit_message(false, 'prefix', '')
alter table shop.orders add column extra text
insert into shop.orders (id, extra) values (5000, 'more')
alter table shop.orders drop column note
update shop.orders set extra = 'changed' where id = 5000
truncate shop.orders, shop.keyless
truncate shop.big restart identity cascade
insert into shop.orders (id) values (1)
"""
PEEK = (
    "select lsn, data from pg_logical_slot_peek_binary_changes('decode_live', null, null,"
    " 'proto_version', '1', 'publication_names', 'decode_live', 'messages', 'true')"
)


@pytest.fixture(scope="module")
def streamed(each_pg):
    """Every message of CHANGES (each statement a transaction, then all kinds of rows in one), as XLogData frames."""
    database = each_pg.database("decode")
    with contextlib.closing(each_pg.connect(database)) as connection:
        connection.execute(TABLES)
        connection.execute("create publication decode_live for all tables")
        connection.execute("select pg_create_logical_replication_slot('decode_live', 'pgoutput')")
        try:
            connection.execute("select pg_replication_origin_create('decode_live_origin')")
            for statement in CHANGES.strip().replace(",\n    ", ", ").splitlines():
                connection.execute(statement)
            connection.execute("select pg_replication_origin_session_setup('decode_live_origin')")
            with connection.transaction():
                connection.execute("select pg_replication_origin_xact_setup('0/ABCDEF', now())")
                for number in range(50):
                    connection.execute("insert into shop.orders (id) values (%s)", [100 + number])
                    connection.execute("insert into shop.big values (%s, 1, %s)", [100 + number, "x" * 9000])
                    connection.execute("update shop.big set small = 2 where id = %s", [100 + number])
                    connection.execute("delete from shop.orders where id = %s", [100 + number])
            connection.execute("select pg_replication_origin_session_reset()")
            yield [_frame(lsn, bytes(data)) for lsn, data in connection.execute(PEEK).fetchall()]
        finally:
            connection.execute("select pg_drop_replication_slot('decode_live')")
            connection.execute("select pg_replication_origin_drop('decode_live_origin')")


def _frame(lsn: str, data: bytes) -> bytes:
    high, low = (int(part, 16) for part in lsn.split("/"))
    return plain.frame(data, 0 if data[:1] in (b"R", b"Y") else high << 32 | low)


def test_every_kind_of_message_was_streamed(streamed):
    assert {frame[25:26] for frame in streamed} == {bytes([kind]) for kind in b"BCORYIUDTM"}


@pytest.mark.parametrize("step", [1, 7, 100, 100_000])
def test_both_decoders_agree(streamed, step):
    assert_same(streamed, range(step, len(streamed), step))


def test_a_second_reading_gives_the_same_positions(streamed):
    def positions(frames):
        found = sort_segment(Segment.of(frames), StreamState(), lambda relation, xid: table_of(relation))
        return {
            (str(run.relation), *row)
            for run in found.runs
            for row in zip(run.raw["commit_lsn"].to_pylist(), run.raw["tx_index"].to_pylist(), strict=True)
        }

    commits = [index for index, frame in enumerate(streamed) if frame[25:26] == b"C"]
    relations = [frame for frame in streamed if frame[25:26] == b"R"]
    assert relations
    middle = commits[4] + 1  # before any relation changes: a new connection announces the same ones again
    announced = {struct.unpack("!I", frame[26:30])[0]: frame for frame in reversed(relations)}
    assert positions(streamed[:middle]) | positions(
        [*announced.values(), *streamed[middle : commits[12] + 1]]
    ) == positions(streamed[: commits[12] + 1])


def test_copied_rows_are_what_the_server_says(each_pg):
    database = each_pg.database("decode")
    values = [
        "plain",
        "",
        None,
        "\\N",
        "\\",
        "tab\tline\nreturn\r",
        "\b\f\v",
        "é 🐘 \x01\x7f",
        "\\x41 \\101",
        "x" * 5000,
    ]
    with contextlib.closing(each_pg.connect(database)) as connection:
        connection.execute("create table t (id int, v text)")
        for number, value in enumerate(values):
            connection.execute("insert into t values (%s, %s)", [number, value])
        with connection.cursor() as cursor, cursor.copy("copy (select * from t order by id) to stdout") as copy:
            data = b"".join(bytes(block) for block in copy)
    columns = decode_copy(data, ("id", "v"))
    assert columns.text[0].to_pylist() == [str(number) for number in range(len(values))]
    assert columns.text[1].to_pylist() == values
