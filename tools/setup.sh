#!/usr/bin/env bash
# Creates the virtual environment and installs the project into it. Names what is missing where it may not install.
# setup.sh VENV [CONSTRAINTS]: without a file of constraints, the newest versions that pyproject.toml allows
set -euo pipefail
venv=$1
wanted=(--disable-pip-version-check -e '.[dev]')
[ -z "${2:-}" ] || wanted+=(-c "$2")

fail() { printf 'wal2lake setup: %s\n' "$1" >&2; exit 1; }

python=""
for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
  [ -n "$candidate" ] || continue
  if command -v "$candidate" >/dev/null 2>&1 &&
     "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail "found no Python 3.11, 3.12 or 3.13. Install one (Debian: apt install python3.11 python3.11-venv) or name it: make PYTHON=/path/to/python3.11 setup"

java_home=${JAVA_HOME:-}
java_bin=$([ -x "$java_home/bin/java" ] && echo "$java_home/bin/java" || command -v java || true)
[ -n "$java_bin" ] ||
  fail "found no Java. Spark needs Java 17 or 21 (Debian: apt install openjdk-17-jre-headless)."
major=$("$java_bin" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p')
case "$major" in
  17 | 18 | 19 | 20 | 21) ;;
  *) fail "found Java ${major:-of an unknown version}, Spark needs 17 or 21 (Debian: apt install openjdk-17-jre-headless; or set JAVA_HOME)." ;;
esac

if [ ! -x "$venv/bin/python" ]; then
  "$python" -m venv "$venv" || fail "could not make $venv: the venv module is missing (Debian: apt install python3.11-venv)."
fi
log="$venv/setup.log"
echo "wal2lake setup: installing into $venv (a few minutes the first time; details in $log)"
if ! "$venv/bin/python" -m pip install "${wanted[@]}" >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail "the package registry did not deliver; see $log. If it has a version of constraints.txt no more: make setup CONSTRAINTS="
fi
# Delta's jars, once, so that later starts need no network, and the archive of classes, so that they are short.
if ! "$venv/bin/python" -m tools.fetch_jars >>"$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail "Delta Lake's jars could not be resolved; set DEFAULT_ARTIFACT_REPOSITORY to a Maven mirror or WAL2LAKE_DELTA_JARS to a folder of jars"
fi
# A Kafka broker for the tests and the demo, without which everything else works.
if ! "$venv/bin/python" -m tools.fetch_kafka >>"$log" 2>&1; then
  echo "wal2lake setup: Apache Kafka's jars could not be downloaded; tests that need a broker will try again (see $log)"
fi
# PostgreSQL 16 and 17 and two old minor versions of 15, which only tests use.
if ! "$venv/bin/python" -m tools.fetch_postgres >>"$log" 2>&1; then
  echo "wal2lake setup: PostgreSQL 15.4, 15.12, 16 and 17 could not all be downloaded; tests that need them will try again (see $log)"
fi
# As pip does with what it installs; this checkout is only linked.
(unset PYTHONDONTWRITEBYTECODE; "$venv/bin/python" -m compileall -q cdc_core pipelines tests/support >>"$log" 2>&1) || true
# pytest compiles its modules in its own way: once here, and not in each process of the first run.
(unset PYTHONDONTWRITEBYTECODE; "$venv/bin/python" -m pytest --collect-only -qq tests >>"$log" 2>&1) || true
echo "wal2lake setup: done"
