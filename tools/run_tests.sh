#!/usr/bin/env bash
# All tests but those of stores and debezium, for `make test`: run_tests.sh PYTHON WORKERS
#
# Tests that run servers and commands wait now and then, all of them at once for a tenth of a core, and the browser tests
# for most of their time. So these come in one process, and in another one of a lower priority those that need nothing but
# the processor, both beside all others, in WORKERS processes. The priority is one at which they end before the others:
# not a much lower one, for then they would be left over, alone with one core, and get a twentieth of it beside a load of
# four. What fails does not keep the rest from running.
set -euo pipefail
python=$1
workers=$2
computing=(tests/unit tests/house tests/fuzz)
said=$(mktemp -d)
failed=0

nice -n 3 "$python" -m pytest -q "${computing[@]}" >"$said/computing" 2>&1 &
beside=("$!")
"$python" -m pytest -q -m ui --durations=10 tests/ui >"$said/browser" 2>&1 &
beside+=("$!")
trap 'kill "${beside[@]}" 2>/dev/null || true; rm -rf "$said"' EXIT
"$python" -m pytest -q -m "not ui and not stores and not debezium" --durations=20 -n "$workers" --dist loadfile --no-loadscope-reorder \
    "${computing[@]/#/--ignore=}" tests || failed=1
for process in "${beside[@]}"; do
    wait "$process" || failed=1
done
trap 'rm -rf "$said"' EXIT
cat "$said/computing" "$said/browser"
exit "$failed"
