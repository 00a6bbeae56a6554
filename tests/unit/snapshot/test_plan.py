import itertools

from hypothesis import given
from hypothesis import strategies as st

from cdc_core.postgres.catalog.leaves import Leaf
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.copy.plan import order_tables, plan_chunks, plan_leaves
from cdc_core.snapshot.options import TableOrder

T = TableId("public", "orders")


@given(
    pages=st.integers(0, 10**7),
    rows=st.none() | st.integers(-1, 10**10),
    per_chunk=st.integers(1, 10**7),
    most=st.integers(1, 500),
)
def test_chunks_cover_every_page_once_and_the_last_is_open(pages, rows, per_chunk, most):
    chunks = plan_chunks(T, pages, rows, per_chunk, most)
    assert chunks[0].first_block == 0
    assert chunks[-1].end_block is None
    assert len(chunks) <= most
    for left, right in itertools.pairwise(chunks):
        assert left.end_block == right.first_block
        assert left.first_block < left.end_block


def test_a_small_table_is_one_chunk_without_a_condition():
    (chunk,) = plan_chunks(T, 3, 100, 1_000, 8)
    assert chunk.predicate() == ""


def test_a_large_table_is_cut_by_its_rows():
    chunks = plan_chunks(T, 1_000, 100_000, 25_000, 8)
    assert [chunk.predicate() for chunk in chunks] == [
        "ctid < '(250,0)'::tid",
        "ctid >= '(250,0)'::tid AND ctid < '(500,0)'::tid",
        "ctid >= '(500,0)'::tid AND ctid < '(750,0)'::tid",
        "ctid >= '(750,0)'::tid",
    ]


def test_tables_go_by_their_estimates_and_else_stay_in_their_order():
    tables = [TableSchema(TableId("s", name), number, ()) for number, name in enumerate("abcd")]
    rows = {TableId("s", "a"): 5, TableId("s", "b"): None, TableId("s", "c"): 9, TableId("s", "d"): 5}

    def names(order):
        return "".join(table.id.table for table in order_tables(tables, rows, order))

    assert names(TableOrder.DISABLED) == "abcd"
    assert names(TableOrder.ASCENDING) == "badc"
    assert names(TableOrder.DESCENDING) == "cadb"


def leaf(name, pages, rows, has_ctid=True):
    return Leaf(TableId("public", name), 1, "1", has_ctid, pages, rows)


def test_large_leaves_have_ranges_of_their_own_and_small_ones_go_together():
    leaves = [leaf("a", 10, 400), leaf("b", 300, 3_000), leaf("c", 10, 500), leaf("d", 0, 0), leaf("e", 10, 200)]
    ranges = plan_leaves([*leaves, leaf("f", 300, 3_000, has_ctid=False), leaf("g", 1, 5)], 1_000)
    found = [[(chunk.table.table, chunk.first_block, chunk.end_block) for chunk in chunks] for chunks in ranges]
    assert found == [
        [("b", 0, 100)],
        [("b", 100, 200)],
        [("b", 200, None)],
        [("a", 0, None), ("c", 0, None), ("d", 0, None)],
        [("e", 0, None)],
        [("f", 0, None)],
        [("g", 0, None)],
    ]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1_000), st.none() | st.integers(0, 10**5), st.booleans()), max_size=400),
    per_chunk=st.integers(1, 10**5),
)
def test_ranges_cover_every_page_of_every_leaf_once(sizes, per_chunk):
    leaves = [leaf(str(number), *size) for number, size in enumerate(sizes)]
    ranges = plan_leaves(leaves, per_chunk)
    assert all(0 < len(chunks) <= 100 for chunks in ranges)
    by_leaf = {}
    for chunk in itertools.chain.from_iterable(ranges):
        by_leaf.setdefault(chunk.table, []).append(chunk)
    assert by_leaf.keys() == {one.id for one in leaves}
    for one in leaves:
        chunks = by_leaf[one.id]
        assert chunks[0].first_block == 0 and chunks[-1].end_block is None
        assert all(left.end_block == right.first_block for left, right in itertools.pairwise(chunks))
        assert one.has_ctid or len(chunks) == 1
