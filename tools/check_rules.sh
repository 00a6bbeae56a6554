#!/usr/bin/env bash
# Checks the alert rules and the configuration of Prometheus by its own promtool: check_rules.sh
# Without promtool in PATH, Go 1.26 or later builds one into .wal2lake: three minutes of CPU time, and 2 GB of modules and caches.
set -euo pipefail
version=v0.316.0
root=$(cd "$(dirname "$0")/.." && pwd)
promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
  promtool=$root/.wal2lake/promtool
  if [ ! -x "$promtool" ]; then
    command -v go >/dev/null || { echo "Neither promtool nor Go is installed: install one of them." >&2; exit 1; }
    source=$(mktemp -d)
    trap 'rm -rf "$source"' EXIT
    mkdir -p "$root/.wal2lake"
    # A module of its own: go install refuses modules that replace others, as Prometheus does.
    (
      cd "$source"
      go mod init promtool
      go get "github.com/prometheus/prometheus/cmd/promtool@$version"
      # Without the discovery of services, which is most of it and checks no rule.
      go build -tags netgo,remove_all_sd -o "$promtool" github.com/prometheus/prometheus/cmd/promtool
    ) 2>"$source/said" || { cat "$source/said" >&2; exit 1; }
  fi
fi
"$promtool" check rules "$root/deploy/prometheus/alerts.yaml"
"$promtool" check config --syntax-only "$root/examples/monitoring/prometheus.yml"
