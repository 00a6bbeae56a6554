"""The wheel that the source archive makes, installed into an empty environment and used in an empty folder.

Nothing comes from the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, rows, write_properties
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc_core", "pipelines", "wal2lake")
BUILT_FROM = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE", "dagster.yaml", "workspace.yaml")
BESIDE = ("dagster", "dagster-webserver", "dagster-daemon")
SCRIPT = """#!{python}
import sys
from importlib.metadata import entry_points
[found] = entry_points(group="console_scripts", name="{name}")
sys.exit(found.load()())
"""


@dataclass(frozen=True)
class Installed:
    """A virtual environment, and the folder where its commands run."""

    home: Path
    folder: Path

    def run(self, name: str, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run one of its programs by name with nothing of the checkout in the environment."""
        clean = {
            variable: value
            for variable, value in os.environ.items()
            if not variable.startswith(("PYTHON", "PYSPARK", "DAGSTER", "VIRTUAL_ENV", "WAL2LAKE_"))
            or variable == "WAL2LAKE_DELTA_JARS"
        }
        command = [str(self.home / "bin" / name), *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**clean, "PATH": f"{self.home / 'bin'}{os.pathsep}{clean['PATH']}"},
            capture_output=True,
            text=True,
            timeout=patient(seconds),
            check=False,
        )


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel in an environment that has its dependencies (this one's, so that nothing is downloaded), not itself."""
    if tuple(int(part) for part in version("setuptools").split(".")[:2]) < (77, 0):
        pytest.skip(f"setuptools {version('setuptools')} cannot build a wheel; make setup installs a newer one")
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    archive = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", archive], cwd=source, capture_output=True, timeout=240, check=True)
    [sdist] = folder.glob("*.tar.gz")
    pip("wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(folder), str(sdist))
    [wheel] = folder.glob("*.whl")
    shutil.rmtree(source)
    home = folder / "venv"
    venv.create(home, symlinks=True)
    pip("--python", str(home / "bin" / "python"), "install", "-q", "--no-deps", "--no-index", str(wheel))
    # A folder that a .pth file names is searched after the environment's own; .pth files in it are not read, so that
    # the checkout, which is installed there as editable, is not found.
    own = sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    others |= {path for path in sys.path if path.endswith("site-packages")}
    (Path(own) / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(others)))
    for name in BESIDE:
        script = home / "bin" / name
        script.write_text(SCRIPT.format(python=home / "bin" / "python", name=name))
        script.chmod(0o755)
    # PostgreSQL of the demo runs as another account under root: every folder above its own must be open to it.
    empty = Path(tempfile.mkdtemp(prefix="w2l-installed-"))
    empty.chmod(0o755)
    yield Installed(home, empty)
    shutil.rmtree(empty, ignore_errors=True)


def properties_of(pg: Any, database: str, folder: Path) -> Path:
    return write_properties(
        folder / "shop.properties",
        pg.properties(
            database,
            **{
                "schema.include.list": "public",
                "wal2lake.lake.path": str(folder / "lake"),
                "wal2lake.state.path": str(folder / "state"),
                "wal2lake.merge.engine": "spark",
            },
        ),
    )


def test_check_and_run_and_dagsters_code_location(pg, installed, tmp_path):
    done = installed.run("python", "-c", "import cdc_core, pipelines; print(cdc_core.__file__, pipelines.__file__)")
    assert all(path.startswith(str(installed.home)) for path in done.stdout.split()), done
    group = "import importlib.metadata as m; found = m.entry_points(group='dagster_dg_cli.registry_modules')\n"
    asked = "print(*[one.load().Connector.__module__ for one in found if one.name == 'wal2lake'])"
    done = installed.run("python", "-c", group + asked)
    assert done.stdout.strip() == "pipelines.component", done
    home = tmp_path / "home"
    done = installed.run("wal2lake", "dagster-home", str(home))
    assert done.returncode == 0, done.stderr
    assert f"export DAGSTER_HOME={home}" in done.stdout
    for name in ("dagster.yaml", "workspace.yaml"):
        assert (home / name).read_text() == (ROOT / name).read_text(), "one text, wherever it is read"
    database = pg.database("installed")
    pg.execute(database, "create table t (id int primary key, v text); insert into t values (1, 'a')")
    file = properties_of(pg, database, home / "connectors")
    assert installed.run("wal2lake", "check", str(file)).returncode == 0
    assert installed.run("wal2lake", "run", str(file), "--until-idle", "1").returncode == 0
    pg.execute(database, "update t set v = 'b'; insert into t values (2, 'c')")
    # With a server's Java process of its own, as users run it; the log store's source is compiled there.
    done = installed.run("wal2lake", "run", str(file), "--until-idle", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    found = rows(lake_path(load(file), TableId("public", "t")))
    assert sorted((row["id"], row["v"]) for row in found) == [(1, "b"), (2, "c")]
    location = f"import os; os.environ['DAGSTER_HOME'] = {str(home)!r}\nfrom pipelines.definitions import defs\n"
    asked = "print(sorted(job.name for job in defs.resolve_all_job_defs()))"
    done = installed.run("python", "-c", location + asked)
    assert "test_stream_job" in done.stdout, done.stdout + done.stderr[-3000:]
    source = (
        "from importlib.resources import files; print(files('cdc_core.spark').joinpath('S3ConditionalLogStore.java')"
    )
    done = installed.run("python", "-c", source + ".read_text())")
    assert "class S3ConditionalLogStore" in done.stdout, done.stderr


def test_the_demo(installed):
    done = installed.run("wal2lake", "demo", "--seconds", "3", seconds=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "every table is equal, row by row" in done.stdout
