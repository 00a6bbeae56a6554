"""Delta's log store for S3, where delta-rs commits to the same tables: log entries are created by conditional PUTs.

Of Delta 4.4's own log stores none does so: its store for s3a is for a single Spark driver (it asks whether an entry is
there, and overwrites), and S3A makes a PUT conditional only for who asks for it. So the store is a class of ours, some
forty lines of Java, compiled by Janino, which Spark brings for its generated code, and put on the driver's class path.
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
    """Make the class known to the context's JVM, unless it is. Before Delta first looks at a table on S3."""
    jvm = context._jvm
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    with _lock:
        if _is_known(jvm, loader):
            return
        with tempfile.TemporaryDirectory(prefix="wal2lake-jar-") as folder:
            jar = Path(folder) / "s3-log-store.jar"
            _compile(jvm, loader, jar)
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
            # Loaded here, the class needs its jar no more.
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
