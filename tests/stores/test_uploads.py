"""Files that are uploaded in parts: complete or not there, and nothing of an upload that failed is left."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.delta.objects import WHOLE_BYTES, Objects
from tests.support.object_stores import Bucket
from tests.support.store_proxy import CUT, LOSE, LOSE_500, REFUSE, StoreProxy

pytestmark = [pytest.mark.stores, pytest.mark.slow]

NAME = "large.parquet"
CONTENT = bytes(range(256)) * (WHOLE_BYTES // 256) * 2 + b"the end"


@pytest.fixture
def objects(bucket: Bucket, store: StoreProxy) -> Objects:
    near = bucket.by(store.url)
    return Objects(delta_uri(near.path("t")), near.options, retries=2)


def write(objects: Objects, fail: Callable[[], None] = lambda: None) -> None:
    with objects.open_output(NAME) as target:
        for start in range(0, len(CONTENT), WHOLE_BYTES // 4):
            target.write(CONTENT[start : start + WHOLE_BYTES // 4])
        fail()


def left(store: StoreProxy) -> int:
    """Uploads that were begun and not aborted; none of Azure, which has requests for neither."""
    asked = [each for each in store.requests() if each.status in (200, 204)]
    begun = [each for each in asked if each.kind == "POST" and each.query.startswith("uploads")]
    aborted = [each for each in asked if each.kind == "DELETE" and "uploadId" in each.query]
    return len(begun) - len(aborted)


def test_a_large_file_is_there_as_it_was_written(objects, store):
    write(objects)
    assert objects.get(NAME) == CONTENT and objects.size(NAME) == len(CONTENT)
    assert len([each for each in store.requests() if each.kind == "PUT"]) >= 3


@pytest.mark.parametrize("fault", [LOSE, LOSE_500, CUT, REFUSE])
def test_a_part_is_uploaded_whatever_becomes_of_its_answer(objects, store, fault):
    store.fail(fault, rf"PUT .*{NAME}")
    write(objects)
    assert store.heal() == 0, "the fault did not occur"
    assert objects.get(NAME) == CONTENT


def test_what_a_writer_began_and_did_not_end_is_aborted(objects, store):
    def fail() -> None:
        raise pa.ArrowInvalid("the writer fails")

    with pytest.raises(pa.ArrowInvalid, match="the writer fails"):
        write(objects, fail)
    assert objects.missing([NAME]) == [NAME]
    assert left(store) == 0


def test_an_upload_whose_parts_are_refused_fails_and_is_aborted(objects, store):
    store.fail(REFUSE, rf"PUT .*{NAME}", times=10_000)
    with pytest.raises(OSError, match="503"):
        write(objects)
    store.heal()
    assert objects.missing([NAME]) == [NAME]
    assert left(store) == 0


@pytest.mark.parametrize("fault", [LOSE, LOSE_500])
def test_a_completed_upload_whose_answer_was_lost_is_complete(bucket, objects, store, fault):
    """The store knows no such upload when it is asked again."""

    def lose() -> None:
        store.fail(fault, rf"PUT .*{NAME}\?comp=blocklist" if bucket.kind == "azure" else rf"POST .*{NAME}\?uploadId")

    write(objects, lose)
    assert store.heal() == 0, "the fault did not occur"
    assert objects.get(NAME) == CONTENT


def test_objects_are_deleted_also_where_some_are_gone(objects):
    names = [str(number) for number in range(40)]
    for name in names:
        objects.put(name, b"1")
    objects.delete(["gone", *names])
    assert objects.listed("") == []
    objects.delete(["gone"])
