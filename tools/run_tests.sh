#!/usr/bin/env bash
# All tests but those of s3 and debezium, for `make test`: run_tests.sh PYTHON WORKERS
#
# The browser tests compute for a quarter of their time, so one process has them beside everything else. First come two
# processes with the tests that need nothing but the processor, at a low priority: a browser waits for an answer. Not at
# a lower one: beside a load of four they would get a twentieth of a core each. Then all others. What fails does not keep
# the rest from running.
set -euo pipefail
python=$1
workers=$2
computing=(tests/unit tests/house tests/fuzz)
said=$(mktemp)
failed=0

"$python" -m pytest -q -m ui --durations=10 tests/ui >"$said" 2>&1 &
browser=$!
trap 'kill "$browser" 2>/dev/null || true; rm -f "$said"' EXIT
nice -n 5 "$python" -m pytest -q -n 2 "${computing[@]}" || failed=1
"$python" -m pytest -q -m "not ui and not s3 and not debezium" --durations=20 -n "$workers" \
    "${computing[@]/#/--ignore=}" tests || failed=1
wait "$browser" || failed=1
trap 'rm -f "$said"' EXIT
cat "$said"
exit "$failed"
