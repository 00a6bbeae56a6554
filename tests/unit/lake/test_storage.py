"""One set of storage settings for both engines; a path that carries them, and no secret."""

import pickle

import pytest

from cdc_core.config.connector import load
from cdc_core.errors import ConfigError
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.delta.storage import LOG_STORE, Location, Storage, copies_for, options_for
from cdc_core.lake.object_stores import S3, Azure, Gcs, for_delta_rs, for_hadoop, parse_lake_path
from cdc_core.lake.paths import LakePaths
from cdc_core.option import Secret
from cdc_core.schema.table import TableId

T = TableId("public", "t")
AZURE = "abfss://data@acc.dfs.core.windows.net"
MINIO = Storage(S3("http://127.0.0.1:9000", "eu-1", "key", Secret("very secret"), True))


def test_both_engines_get_the_same_settings():
    assert MINIO.s3.for_delta_rs() == {
        "aws_endpoint_url": "http://127.0.0.1:9000",
        "aws_region": "eu-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "very secret",
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "aws_conditional_put": "etag",
    }
    assert MINIO.s3.for_hadoop() == {
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "eu-1",
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "very secret",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    # What is not said is left to the engines' defaults, but for the condition of a commit.
    assert S3().for_delta_rs() == {"aws_conditional_put": "etag"}
    assert S3().for_hadoop() == {}


def test_only_what_is_in_a_store_has_copies_on_the_machine(tmp_path):
    """Workers ask the log of a local table in each round, as it costs nothing: other programs may have written."""
    storage = Storage(copies=str(tmp_path / "objects"), copies_max_bytes=1 << 20)
    assert copies_for(Location("s3://bucket/lake/t", storage)) is not None
    assert copies_for(Location(str(tmp_path / "lake" / "t"), storage)) is None


def test_a_path_carries_its_settings_to_tasks_and_shows_no_secret():
    paths = LakePaths("s3://bucket/lake/", "shop", MINIO)
    lake = pickle.loads(pickle.dumps(paths)).lake(T)
    assert lake == "s3a://bucket/lake/shop/public/t"
    assert delta_uri(lake) == "s3://bucket/lake/shop/public/t"
    assert isinstance(lake, Location)
    assert options_for(pickle.loads(pickle.dumps(lake))) == MINIO.s3.for_delta_rs()
    assert "very secret" not in repr(paths) + repr(lake) + str(lake)
    assert {lake: 1}["s3a://bucket/lake/shop/public/t"] == 1


def test_a_secret_that_is_a_reference_is_resolved_in_the_end_only(monkeypatch, tmp_path):
    file = tmp_path / "s3.properties"
    file.write_text(
        "topic.prefix=shop\ndatabase.hostname=h\ndatabase.user=u\ndatabase.password=p\ndatabase.dbname=d\n"
        "wal2lake.lake.path=s3a://bucket/lake\nwal2lake.storage.s3.secret.key=${env:W2L_TEST_SECRET}\n"
    )
    monkeypatch.setenv("W2L_TEST_SECRET", "from the environment")
    config = load(file)
    storage = Storage.of(config.lake)
    assert b"from the environment" not in pickle.dumps(LakePaths(config.lake.lake_path, "shop", storage))
    assert storage.s3.for_delta_rs()["aws_secret_access_key"] == "from the environment"
    assert "from the environment" not in repr(config)


def test_other_file_systems_are_left_alone(tmp_path):
    paths = LakePaths(str(tmp_path), "shop", MINIO)
    assert options_for(paths.lake(T)) is None
    assert options_for("s3://bucket/t", {"a": "b"}) == {"a": "b"}
    assert Storage.spark_settings(str(tmp_path)) == {}
    assert Storage.spark_settings("s3a://bucket/lake") == dict([LOG_STORE])
    MINIO.reach(None, str(tmp_path))


@pytest.mark.parametrize(
    ("path", "hadoop", "delta_rs"),
    [
        ("s3://b/lake", "s3a://b/lake", "s3://b/lake"),
        ("gs://b/lake", "gs://b/lake", "gs://b/lake"),
        (f"{AZURE}/lake", f"{AZURE}/lake", f"{AZURE}/lake"),
        (f"{AZURE.replace('abfss', 'abfs')}/lake", f"{AZURE}/lake", f"{AZURE}/lake"),
        ("az://data/lake", f"{AZURE}/lake", f"{AZURE}/lake"),
        ("az://data", AZURE, AZURE),
    ],
)
def test_a_path_has_one_name_for_each_engine(path, hadoop, delta_rs):
    assert parse_lake_path(path) == path
    assert for_hadoop(path, Azure(account_name="acc")) == hadoop
    assert for_delta_rs(hadoop) == delta_rs


def test_an_account_comes_from_the_environment_and_http_has_its_scheme(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert for_hadoop("az://data/lake", Azure()) == "az://data/lake"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc")
    assert for_hadoop("az://data/lake", Azure()) == f"{AZURE}/lake"
    emulated = Azure("http://127.0.0.1:10000/acc")
    assert for_hadoop("az://data/lake", emulated) == f"{AZURE.replace('abfss', 'abfs')}/lake"
    assert emulated.for_delta_rs()["allow_http"] == "true"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("hdfs://name:8020/lake", "hdfs:// is not supported"),
        ("wasbs://data@acc.blob.core.windows.net/lake", "wasbs:// is not supported"),
        ("gcs://b/lake", "gcs:// is not supported"),
        ("dbfs:/lake", "dbfs:// is not supported"),
        ("s3n://b/lake", "s3n:// is not supported"),
        ("https://acc.blob.core.windows.net/data/lake", "https:// is not supported"),
        ("abfss://data/lake", r"container@account\.dfs\.core\.windows\.net"),
        ("abfss://data@acc.blob.core.windows.net/lake", r"container@account\.dfs\.core\.windows\.net"),
        ("az://data@acc/lake", "without credentials and port"),
        ("gs:///lake", "gs://bucket/folder"),
        ("gs:/bucket/lake", "gs://bucket/folder"),
        ("s3://b/lake?versionId=1", "s3://bucket/folder"),
    ],
)
def test_a_store_of_another_kind_is_refused_by_its_name(path, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        parse_lake_path(path)
    file = tmp_path / "shop.properties"
    file.write_text(
        "topic.prefix=shop\ndatabase.hostname=h\ndatabase.user=u\ndatabase.password=p\ndatabase.dbname=d\n"
        f"wal2lake.lake.path={path}\n"
    )
    with pytest.raises(ConfigError, match=told):
        load(file)


@pytest.mark.parametrize("path", ["", "lake", "/data/lake", "file:///data/lake", "C:/lake"])
def test_a_folder_is_taken_as_it_is(path):
    assert parse_lake_path(path) == path


def test_google_and_azure_get_the_same_settings_in_both_engines():
    gcs = Gcs("http://127.0.0.1:4443", "/keys/a.json")
    assert gcs.for_delta_rs() == {
        "google_base_url": "http://127.0.0.1:4443",
        "google_service_account": "/keys/a.json",
        "allow_http": "true",
    }
    assert gcs.for_hadoop() == {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": "/keys/a.json",
    }
    assert Gcs().for_hadoop() == {"fs.gs.auth.type": "APPLICATION_DEFAULT"}
    azure = Azure("https://blobs.example.com", "acc", Secret("very secret"))
    assert azure.for_delta_rs() == {
        "azure_storage_endpoint": "https://blobs.example.com",
        "azure_storage_account_key": "very secret",
    }
    assert azure.for_hadoop() == {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": "very secret"}
    assert "very secret" not in repr(azure)


OAUTH = {"fs.azure.account.auth.type": "OAuth"}
PROVIDER = "org.apache.hadoop.fs.azurebfs.oauth2."


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        (
            {"AZURE_STORAGE_ACCOUNT_KEY": "k"},
            {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": "k"},
        ),
        (
            {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"},
            OAUTH
            | {
                "fs.azure.account.oauth.provider.type": f"{PROVIDER}ClientCredsTokenProvider",
                "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
                "fs.azure.account.oauth2.client.id": "c",
                "fs.azure.account.oauth2.client.secret": "s",
            },
        ),
        (
            {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_FEDERATED_TOKEN_FILE": "/f"},
            OAUTH
            | {
                "fs.azure.account.oauth.provider.type": f"{PROVIDER}WorkloadIdentityTokenProvider",
                "fs.azure.account.oauth2.client.id": "c",
                "fs.azure.account.oauth2.msi.tenant": "t",
                "fs.azure.account.oauth2.token.file": "/f",
            },
        ),
        (
            {"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"},
            {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "sv=1&sig=x"},
        ),
        ({}, OAUTH | {"fs.azure.account.oauth.provider.type": f"{PROVIDER}MsiTokenProvider"}),
    ],
)
def test_hadoop_takes_azures_credentials_from_where_the_others_take_them(environment, settings, monkeypatch):
    for name in ("ACCOUNT_KEY", "ACCESS_KEY", "MASTER_KEY", "SAS_KEY", "SAS_TOKEN", "TENANT_ID", "CLIENT_ID"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET", "FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(f"AZURE_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Azure().for_hadoop() == settings


def test_a_lake_is_opened_with_settings_by_their_names():
    assert Storage.named({"s3.endpoint": "http://h", "s3.path.style": "True"}).s3 == S3("http://h", path_style=True)
    assert Storage.named({"azure.account.key": "k"}).azure == Azure(account_key=Secret("k"))
    with pytest.raises(ConfigError, match=r"no setting s3\.url"):
        Storage.named({"s3.url": "http://h"})
