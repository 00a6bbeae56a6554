"""Delta's log store for S3, compatible with delta-rs' commits: log entries are created by conditional PUTs.

None of Delta 4.4's own log stores does this: its store for s3a is for a single Spark driver (it checks whether an entry
exists, and overwrites), and S3A makes a PUT conditional only on request. So the store is a separate class of about
forty lines of Java, compiled by Janino, which Spark includes for its generated code, and added to the driver's class
path.
"""

from __future__ import annotations

import tempfile
import threading
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

CLASS = "wal2lake.S3ConditionalLogStore"

_lock = threading.Lock()


def install(context: Any) -> None:
    """Make the class available in the context's JVM, unless it is; before Delta first reads a table on S3."""
    jvm = context._jvm
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    with _lock:
        if _is_known(jvm, loader):
            return
        with tempfile.TemporaryDirectory(prefix="wal2lake-jar-") as folder:
            jar = Path(folder) / "s3-log-store.jar"
            _compile(jvm, loader, jar)
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
            # Once loaded, the class no longer needs its jar.
            jvm.java.lang.Class.forName(CLASS, True, loader)


def _is_known(jvm: Any, loader: Any) -> bool:
    try:
        jvm.java.lang.Class.forName(CLASS, False, loader)
    except Py4JJavaError:
        return False
    return True


def _compile(jvm: Any, loader: Any, jar: Path) -> None:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(files("cdc_core.spark").joinpath("S3ConditionalLogStore.java").read_text(encoding="utf-8"))
    with zipfile.ZipFile(jar, "w") as target:
        for name, code in dict(compiler.getBytecodes()).items():
            target.writestr(f"{name.replace('.', '/')}.class", bytes(code))
