"""pgvector's three types."""

from __future__ import annotations

import pyarrow as pa

from tests.unit.types.converters import bad_places, codec_of, event_of, from_extension, obeys_laws, values

DENSE = ["[1,2.5,-3e-05]", None, "[0.1]", "x", "[a]", "[1,,2]", "[]"]
SPARSE = ["{1:0.5,3:2}/5", None, "{}/5", "{40000:1}/50000", "{5:1,2:3,9:1,17:4}/20", "x", "{1:1}/32767", "{1:a}/2"]


def test_laws() -> None:
    for name, texts in (("vector", DENSE), ("halfvec", DENSE), ("sparsevec", SPARSE)):
        codec = codec_of(from_extension(name))
        obeys_laws(codec.natural.convert, codec.natural.arrow_type, *texts)
        assert codec.event is not None
        obeys_laws(codec.event.convert, codec.event.arrow_type, *texts)


def test_dense_vectors() -> None:
    assert values(event_of(from_extension("vector")).convert, *DENSE[:3]) == [[1.0, 2.5, -3e-05], None, [0.1]]
    assert event_of(from_extension("vector")).schema.to_dict() == {
        "type": "array",
        "items": {"type": "double", "optional": False},
        "optional": True,
        "name": "io.debezium.data.DoubleVector",
        "version": 1,
    }
    halves = event_of(from_extension("halfvec"))
    assert halves.arrow_type == pa.list_(pa.float32())
    assert halves.schema.name == "io.debezium.data.FloatVector"
    assert codec_of(from_extension("vector")).natural.arrow_type == pa.list_(pa.float32())
    assert bad_places(halves.convert, *DENSE) == [3, 4, 5, 6]


def test_sparse_vectors_hold_sixteen_bits_in_the_order_of_a_hash_map() -> None:
    event = event_of(from_extension("sparsevec"))
    assert values(event.convert, SPARSE[0], SPARSE[4], SPARSE[2]) == [
        {"dimensions": 5, "vector": [(1, 0.5), (3, 2.0)]},
        {"dimensions": 20, "vector": [(9, 1.0), (17, 4.0), (2, 3.0), (5, 1.0)]},
        {"dimensions": 5, "vector": []},
    ]
    assert bad_places(event.convert, *SPARSE) == [3, 5, 7]
    assert values(codec_of(from_extension("sparsevec")).natural.convert, SPARSE[3]) == [SPARSE[3]]
