"""What ``wal2lake check``, and the start of a run, say of a lake in an object store."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Reader

from cdc_core.demo.processes import free_port
from cdc_core.engine import lake_finding
from cdc_core.errors import StorageError
from cdc_core.lake import LakePaths
from cdc_core.lake.delta.folder import Folder, delta_uri
from cdc_core.lake.delta.storage import Location, Storage
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.option import Secret
from cdc_core.postgres import Finding
from tests.support.object_stores import AZURE_KEY, KEY, SECRET, Bucket
from tests.support.store_proxy import UNCONDITIONAL

pytestmark = [pytest.mark.stores, pytest.mark.slow]


def finding(bucket: Bucket) -> Finding:
    path = bucket.properties["wal2lake.lake.path"]
    return lake_finding(path, LakePaths(path, "test", bucket.storage))


def test_a_store_with_conditional_puts_is_usable_and_nothing_is_left(bucket):
    found = finding(bucket)
    assert found.ok and "refuses a second commit" in found.found
    assert Folder(Location(bucket.path("lake/test"), bucket.storage)).names("__trial") == []


def test_credentials_come_from_the_environment(bucket, monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "GOOGLE_SERVICE_ACCOUNT": bucket.account,
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
    }.items():
        monkeypatch.setenv(name, value)
    told = bucket.storage
    storage = Storage(
        replace(told.s3, access_key="", secret_key=Secret()),
        replace(told.gcs, account_file=""),
        replace(told.azure, account_key=Secret()),
    )
    path = bucket.properties["wal2lake.lake.path"]
    assert lake_finding(path, LakePaths(path, "test", storage)).ok
    DeltaTable.create(Location(bucket.path("lake/test/t"), storage), pa.schema([("id", pa.int64())]), {})
    store = storage.store(path)
    assert store is not None
    assert Reader(delta_uri(bucket.path("lake/test/t")), storage_options=store.for_delta_rs()).version() == 0


def test_a_store_that_ignores_the_condition_is_refused(bucket, store):
    if bucket.kind == "azure":
        pytest.skip("the condition is part of what the client signs")
    store.fail(UNCONDITIONAL, "PUT ", times=2)
    found = finding(bucket.by(store.url))
    assert not found.ok and "ignores the condition of a PUT" in found.found and "conditional PUTs" in found.remedy
    assert Folder(Location(bucket.path("lake/test"), bucket.storage)).names("__trial") == []


def test_a_bucket_that_does_not_exist_is_named(bucket):
    found = finding(replace(bucket, name="no-such-bucket"))
    assert not found.ok and "no bucket or container" in found.found and "no-such-bucket" in found.found


def test_credentials_that_are_refused_are_told_by_the_answers_status(bucket, monkeypatch):
    if bucket.kind != "azure":
        pytest.skip("the server takes any credentials")
    monkeypatch.setattr("tests.support.object_stores.AZURE_KEY", "d3Jvbmc=")
    found = finding(bucket)
    assert not found.ok and "cannot be written (403 Forbidden)" in found.found and "d3Jvbmc" not in found.found


def test_an_account_that_nothing_names_is_asked_for(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    found = lake_finding("az://container/lake", LakePaths("az://container/lake", "test"))
    assert not found.ok and "wal2lake.storage.azure.account.name" in found.remedy


def test_a_store_that_does_not_answer_is_a_fault_that_passes(bucket):
    with pytest.raises(StorageError, match="does not answer"):
        finding(bucket.by(f"http://127.0.0.1:{free_port()}"))
