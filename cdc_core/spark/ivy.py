"""Downloads jars with the Ivy that PySpark contains, without a session."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pyspark

from cdc_core.errors import ConfigError

_CENTRAL = "https://repo1.maven.org/maven2/"
_SECONDS = 300.0


def retrieve(group: str, artifact: str, version: str, folder: Path) -> None:
    """Put an artifact and all that it depends on into ``folder``. Raises ConfigError.

    ``DEFAULT_ARTIFACT_REPOSITORY`` names a mirror of Maven Central. The artifact itself comes last, so that its jar in
    the folder shows that the download was complete.
    """
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    root = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", "").strip() or _CENTRAL
    with tempfile.TemporaryDirectory(prefix="wal2lake-ivy-") as own:
        settings, target = Path(own) / "ivysettings.xml", Path(own) / "jars"
        settings.write_text(
            '<ivysettings><settings defaultResolver="main"/><resolvers>'
            f'<ibiblio name="main" m2compatible="true" root="{root}"/></resolvers></ivysettings>',
            encoding="utf-8",
        )
        command = [java(), "-jar", str(ivy), "-settings", str(settings), "-cache", f"{own}/cache"]
        command += ["-dependency", group, artifact, version, "-confs", "default"]
        # Some of Kafka's libraries are published as OSGi bundles.
        command += ["-types", "jar", "bundle", "-retrieve", f"{target}/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        jars = sorted(target.glob("*.jar"), key=lambda jar: jar.name == f"{artifact}-{version}.jar")
        if done.returncode or not jars or jars[-1].name != f"{artifact}-{version}.jar":
            raise ConfigError(
                f"The jars of {group}:{artifact}:{version} could not be downloaded.",
                "Set DEFAULT_ARTIFACT_REPOSITORY to a Maven mirror.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            staged = folder / f"{jar.name}.{os.getpid()}"
            staged.write_bytes(jar.read_bytes())
            staged.replace(folder / jar.name)


def java() -> str:
    """Return the Java program: that of ``JAVA_HOME`` if it is set."""
    home = os.environ.get("JAVA_HOME", "").strip()
    return f"{home}/bin/java" if home else "java"
