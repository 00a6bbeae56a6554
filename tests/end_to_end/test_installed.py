"""The wheel that the source archive makes, installed into an empty environment and used in an empty folder.

Nothing comes from the checkout. One environment has all dependencies, another only those that the default
installation has.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distribution, requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from cdc_core.version import __version__
from tests.support.lake import lake_path, rows, write_properties
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
# What stands there as code to be run as it is; blocks with a title are parts of somebody's program.
PYTHON_PAGE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)
PACKAGES = ("cdc_core", "pipelines", "wal2lake")
BUILT_FROM = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")
BESIDE = ("dagster", "dagster-webserver", "dagster-daemon")
SCRIPT = """#!{python}
import sys
from importlib.metadata import entry_points
[found] = entry_points(group="console_scripts", name="{name}")
sys.exit(found.load()())
"""
# Where the packages lie, what Dagster's command line finds, the jobs of its code location, and the log store's source.
CONTENTS = """
import os, sys
os.environ["DAGSTER_HOME"] = sys.argv[1]
import cdc_core, wal2lake.pipelines
from importlib.metadata import distribution, entry_points
from importlib.resources import files
print(cdc_core.__file__, wal2lake.pipelines.__file__)
print(*sorted({str(file).split("/")[0] for file in distribution("wal2lake").files if file.suffix == ".py"}))
found = entry_points(group="dagster_dg_cli.registry_modules")
print(*[one.load().ConnectorComponent.__module__ for one in found if one.name == "wal2lake"])
from wal2lake.pipelines.definitions import defs
print(*sorted(job.name for job in defs.resolve_all_job_defs()))
print(files("cdc_core.spark").joinpath("S3ConditionalLogStore.java").read_text())
"""


@dataclass(frozen=True)
class Installed:
    """A virtual environment, and the folder where its commands run."""

    home: Path
    folder: Path

    def run(self, name: str, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run one of its programs by name with nothing of the checkout in the environment."""
        with self.started(name, *arguments) as process:
            stdout, stderr = process.communicate(timeout=patient(seconds))
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    @contextmanager
    def started(self, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The same in the background; where it still runs at the end, it is interrupted, as it ends what it started."""
        clean = {
            variable: value
            for variable, value in os.environ.items()
            if not variable.startswith(("PYTHON", "PYSPARK", "DAGSTER", "VIRTUAL_ENV", "WAL2LAKE_"))
            or variable == "WAL2LAKE_DELTA_JARS"
        }
        path = f"{self.home / 'bin'}{os.pathsep}{clean['PATH']}"
        process = subprocess.Popen(
            [str(self.home / "bin" / name), *arguments],
            cwd=self.folder,
            env={**clean, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=patient(60))
                process.kill()
                process.communicate()


def built(what: str, source: Path, target: Path) -> None:
    """Have setuptools build a ``wheel`` or an ``sdist``, as pip would, whose own start takes as long."""
    order = f"from setuptools.build_meta import build_{what}; build_{what}({str(target)!r})"
    done = subprocess.run(
        [sys.executable, "-c", order], cwd=source, capture_output=True, text=True, timeout=patient(120), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    built("sdist", source, folder)
    shutil.rmtree(source)
    [sdist] = folder.glob("*.tar.gz")
    source.mkdir()
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(source)], timeout=patient(60), check=True)
    [unpacked] = source.iterdir()
    built("wheel", unpacked, folder)
    [wheel] = folder.glob("*.whl")
    shutil.rmtree(source)
    return wheel


def default_requirements() -> set[str]:
    """Names of the distributions that ``pip install wal2lake`` installs beside it, without extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    seen: set[tuple[str, str]] = set()
    lines = [(line, "") for line in project["dependencies"]]
    while lines:
        line, extra = lines.pop()
        required = Requirement(line)
        if required.marker is not None and not required.marker.evaluate({"extra": extra}):
            continue
        for named in {(canonicalize_name(required.name), of) for of in ("", *required.extras)} - seen:
            seen.add(named)
            lines += [(each, named[1]) for each in requires(named[0]) or []]
    return {name for name, _ in seen}


def default_packages(folder: Path) -> Path:
    """A folder with links to the packages of ``default_requirements`` in this environment."""
    folder.mkdir()
    for name in default_requirements():
        for file in distribution(name).files or []:
            top = Path(str(file)).parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).is_symlink():
                (folder / top).symlink_to(distribution(name).locate_file(top))
    return folder


def environment(home: Path, wheel: Path, packages: Iterable[str]) -> Iterator[Installed]:
    """The wheel in an environment that has ``packages``, folders of this one, so that nothing is downloaded."""
    venv.create(home, symlinks=True)
    pip(
        "--python", str(home / "bin" / "python"), "install", "-q", "--no-compile", "--no-deps", "--no-index", str(wheel)
    )
    # A folder that a .pth file names is searched after the environment's own; .pth files in it are not read, so that
    # the checkout, which is installed there as editable, is not found.
    own = sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})
    (Path(own) / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(packages)))
    # PostgreSQL of the demo runs as another account under root: every folder above its own must be open to it.
    empty = Path(tempfile.mkdtemp(prefix="w2l-installed-"))
    empty.chmod(0o755)
    yield Installed(home, empty)
    shutil.rmtree(empty, ignore_errors=True)


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Installed]:
    """With all extras."""
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    packages |= {path for path in sys.path if path.endswith("site-packages")}
    for made in environment(wheel.parent / "venv", wheel, packages):
        for name in BESIDE:
            script = made.home / "bin" / name
            script.write_text(SCRIPT.format(python=made.home / "bin" / "python", name=name))
            script.chmod(0o755)
        yield made


@pytest.fixture(scope="module")
def without_extras(wheel: Path) -> Iterator[Installed]:
    yield from environment(wheel.parent / "bare", wheel, [str(default_packages(wheel.parent / "packages"))])


def properties_of(pg: Any, database: str, folder: Path) -> Path:
    return write_properties(
        folder / "shop.properties",
        pg.properties(
            database,
            **{
                "schema.include.list": "public",
                "wal2lake.lake.path": str(folder / "lake"),
                "wal2lake.state.path": str(folder / "state"),
            },
        ),
    )


def test_dagsters_code_location(installed, tmp_path):
    home = tmp_path / "home"
    done = installed.run("wal2lake", "dagster-home", str(home))
    assert done.returncode == 0, done.stderr
    assert f"export DAGSTER_HOME={home}" in done.stdout
    for name in ("dagster.yaml", "workspace.yaml"):
        assert (home / name).read_text() == (ROOT / name).read_text(), "one text, wherever it is read"
    # No server answers here; the jobs of a connector do not depend on its tables.
    write_properties(
        home / "connectors" / "shop.properties",
        {
            "database.hostname": "127.0.0.1",
            "database.port": "1",
            "database.user": "wal2lake",
            "database.dbname": "shop",
            "topic.prefix": "test",
            "plugin.name": "pgoutput",
            "wal2lake.lake.path": str(home / "lake"),
            "wal2lake.state.path": str(home / "state"),
        },
    )
    done = installed.run("python", "-c", CONTENTS, str(home))
    assert done.returncode == 0, done.stderr[-3000:]
    places, packages, component, jobs, log_store = done.stdout.split("\n", 4)
    assert packages == "cdc_core wal2lake", "a package pipelines would hide that of a user"
    assert all(path.startswith(str(installed.home)) for path in places.split()), done
    assert component == "wal2lake.pipelines.component", done
    assert "test_stream_job" in jobs.split(), done
    assert "class S3ConditionalLogStore" in log_store, done


def test_check_run_and_read_without_extras(pg, without_extras, tmp_path):
    database = pg.database("installed")
    pg.execute(
        database,
        "create table orders (id int primary key, v text); insert into orders values (1, 'a');"
        "create table lines (id int primary key, order_id int, amount int); insert into lines values (1, 1, 7)",
    )
    file = properties_of(pg, database, tmp_path)
    done = without_extras.run("wal2lake", "check", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    lake = lake_path(load(file), TableId("public", "orders"))

    def shows(*expected: tuple[int, str]) -> bool:
        return sorted((row["id"], row["v"]) for row in rows(lake)) == list(expected)

    # With a Java process of its own, as users run it.
    with without_extras.started("wal2lake", "run", str(file), "--max-seconds", "1500") as process:
        wait_until(lambda: process.poll() is not None or shows((1, "a")), 120, "the snapshot")
        pg.execute(database, "update orders set v = 'b'; insert into orders values (2, 'c')")
        wait_until(lambda: process.poll() is not None or shows((1, "b"), (2, "c")), 120, "the changes")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=patient(120))
        assert process.returncode == 0, said[-3000:]
    assert shows((1, "b"), (2, "c")), said[-3000:]
    # From Python, in a project that has a package of the name of one of wal2lake's folders.
    (without_extras.folder / "pipelines").mkdir()
    (without_extras.folder / "pipelines" / "__init__.py").write_text("raise ImportError('the package of the project')")
    code = (
        "\n".join(PYTHON_PAGE)
        .replace("shop.properties", str(file))
        .replace("/data/lake/shop", str(tmp_path / "lake/test"))
    )
    done = without_extras.run(
        "python", "-c", f"{code}\nprint(orders.num_rows, amounts, changes.num_rows, wal2lake.__version__)"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 pyarrow.Table" in done.stdout and done.stdout.endswith(f"0 {__version__}\n"), done.stdout


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("wal2lake", "dagster-home", "home"), "dagster"),
        (("python", "-c", "import wal2lake.dagster"), "dagster"),
        (("python", "-c", "import wal2lake.pipelines.definitions"), "dagster"),
        (("wal2lake", "demo", "--seconds", "1"), "demo"),
        (("wal2lake", "run", "kafka.properties"), "kafka"),
        (("wal2lake", "check", "kafka.properties"), "kafka"),
    ],
)
def test_what_needs_a_missing_extra_names_it(pg, without_extras, command, extra):
    kafka = {"wal2lake.sinks": "kafka", "bootstrap.servers": "127.0.0.1:1"}
    write_properties(without_extras.folder / "kafka.properties", pg.properties(pg.database("extras"), **kafka))
    done = without_extras.run(*command)
    assert done.returncode != 0
    assert f"pip install 'wal2lake[{extra}]'" in done.stdout + done.stderr, done
    # The file of the connector, and what the test before left.
    assert {path.name for path in without_extras.folder.iterdir()} <= {"kafka.properties", "pipelines"}


def test_the_demo(installed):
    # Its Dagster, servers and runs start a dozen processes of Python and Java, one after the other.
    done = installed.run("wal2lake", "demo", "--seconds", "3", "--rate", "20", seconds=700)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "every table is equal, row by row" in done.stdout
