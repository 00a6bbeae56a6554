import pyarrow as pa

from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.engine.reading.batch import Batch, rows_in_changelog
from cdc_core.lake.positions import ChangelogPosition
from cdc_core.schema.table import TableId, TableSchema

T = TableId("public", "t")


def raw(*positions: tuple[int, int]) -> pa.RecordBatch:
    rows = [
        {
            "seq": number,
            "lsn": commit,
            "commit_lsn": commit,
            "tx_index": index,
            "prior_end_lsn": 0,
            "xid": 1,
            "commit_ts_us": 0,
            "origin": None,
            "origin_lsn": None,
            "payload": b"I",
        }
        for number, (commit, index) in enumerate(positions)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA)


def version(number: int) -> TableSchema:
    return TableSchema(T, 1, (), version=number)


def batch_with(*parts: tuple[int, list[tuple[int, int]]], open_lsn: int | None = None, inserts: bool = False) -> Batch:
    batch = Batch(1, open_lsn=open_lsn)
    for number, positions in parts:
        batch.files_of(version(number)).note(raw(*positions), inserts)
    return batch


def test_a_position_drops_what_lies_at_or_before_it():
    drops = rows_in_changelog(ChangelogPosition(100, 1), raw((90, 0), (100, 0), (100, 1), (100, 2), (110, 0)))
    assert drops.tolist() == [True, True, True, False, False]


def test_a_complete_transaction_is_dropped_whole():
    assert rows_in_changelog(ChangelogPosition(100), raw((100, 0), (100, 10**9), (101, 0))).tolist() == [
        True,
        True,
        False,
    ]


def test_rows_beyond_the_position_are_not_looked_at():
    assert rows_in_changelog(ChangelogPosition(100), raw((101, 0))) is None


def test_a_batch_is_complete_to_its_last_commit():
    assert batch_with((1, [(10, 0), (20, 0)])).complete_to(T) == 20


def test_the_transaction_that_a_batch_cuts_is_not_complete():
    assert batch_with((1, [(10, 0), (20, 0)]), open_lsn=20).complete_to(T) == 10
    assert batch_with((1, [(20, 0)]), open_lsn=20).complete_to(T) is None


def test_all_versions_of_a_table_are_complete_together():
    assert batch_with((1, [(10, 0), (20, 0)]), (2, [(20, 1), (30, 0)])).complete_to(T) == 30


def test_versions_keep_the_order_of_the_stream():
    batch = batch_with((1, [(10, 0)]), (1, [(11, 0)]), (2, [(12, 0)]))
    assert [files.table.version for files in batch.versions[T]] == [1, 2]
    assert batch.versions[T][0].rows == 2


def test_the_last_commit_is_found_in_any_version():
    assert batch_with((1, [(10, 0), (20, 0)])).last_commit(T) == 20
    assert batch_with((1, [(10, 0)]), (1, [(20, 0)]), (2, [(20, 1)])).last_commit(T) == 20
    assert batch_with((1, [(10, 0)]), (2, [(20, 0), (30, 0)])).last_commit(T) == 30


def test_the_open_transaction_is_returned_with_its_last_row():
    cut = batch_with((1, [(10, 0), (20, 0)]), (2, [(20, 1), (20, 5)]), open_lsn=20)
    assert cut.open_at(T) == (20, 5)
    assert batch_with((1, [(10, 0), (20, 0)])).open_at(T) is None
    # The transaction is open, but holds no row of this table.
    assert batch_with((1, [(10, 0)]), open_lsn=20).open_at(T) is None


def test_the_last_row_of_the_open_transaction_may_be_noted_before_a_truncate():
    batch = batch_with((1, [(20, 0), (20, 1), (20, 3)]), open_lsn=20)
    batch.files_of(version(1)).note(raw((20, 2)))
    assert batch.open_at(T) == (20, 3)
    # So may one that another version's rows surround.
    assert batch_with((1, [(20, 0), (20, 9)]), (2, [(20, 5)]), open_lsn=20).open_at(T) == (20, 9)


def test_only_inserts_of_one_version_and_whole_transactions_are_called_so():
    assert batch_with((1, [(10, 0)]), (1, [(20, 0)]), inserts=True).only_inserts(T)
    assert not batch_with((1, [(10, 0)]), (2, [(20, 0)]), inserts=True).only_inserts(T)
    assert not batch_with((1, [(10, 0), (20, 0)]), open_lsn=20, inserts=True).only_inserts(T)
    assert batch_with((1, [(10, 0)]), open_lsn=20, inserts=True).only_inserts(T)
    mixed = batch_with((1, [(10, 0)]), inserts=True)
    mixed.files_of(version(1)).note(raw((11, 0)))
    assert not mixed.only_inserts(T)
