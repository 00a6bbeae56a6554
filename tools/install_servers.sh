#!/usr/bin/env bash
# Installs what only the tests need in addition to Python: Debian's PostgreSQL 15 with its plug-ins, the sources of locales, and a
# headless browser.
# Without apt, or without permission, prints a message and continues: the tests then use only the embedded PostgreSQL.
set -euo pipefail

packages=()
need() { [ -e "$1" ] || packages+=("${@:2}"); }
lib=/usr/lib/postgresql/15/lib
need /usr/lib/postgresql/15/bin/postgres postgresql-15
need "$lib/wal2json.so" postgresql-15-wal2json
need "$lib/decoderbufs.so" postgresql-15-decoderbufs
need "$lib/postgis-3.so" postgresql-15-postgis-3
need /usr/share/i18n/locales/bg_BG locales
need /usr/sbin/pgbouncer pgbouncer
need /usr/bin/chromium chromium
need /usr/bin/chromedriver chromium-driver
[ ${#packages[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "wal2lake: no apt-get here; tests that need PostgreSQL 15 run on the embedded server instead. Missing: ${packages[*]}" >&2
  exit 0
fi
if [ "$(id -u)" = 0 ]; then as_root=(); elif sudo -n true 2>/dev/null; then as_root=(sudo -n); else
  echo "wal2lake: may not install packages. As root: apt-get install ${packages[*]}" >&2
  exit 0
fi
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
# No cluster is wanted: the tests make their own.
if ! { timeout 300 "${as_root[@]}" apt-get update -q && timeout 900 "${as_root[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  echo "wal2lake: could not install ${packages[*]}; see $log" >&2
fi
