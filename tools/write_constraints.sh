#!/usr/bin/env bash
# Writes constraints.txt from the versions that a virtual environment has: write_constraints.sh PYTHON
set -euo pipefail
written=$(mktemp constraints.XXXXXX)
trap 'rm -f "$written"' EXIT
{
  echo "# The versions that make setup installs (make constraints writes this file). Other packages are not bounded."
  # pip comes with Python.
  "$1" -m pip freeze --all --exclude-editable | grep -v '^pip=='
} >"$written"
chmod 644 "$written"
mv "$written" constraints.txt
