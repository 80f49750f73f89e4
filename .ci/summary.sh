#!/usr/bin/env bash
# The last lines of `make test`: a row a tier, then one line that counts.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
results="${CARGO_TARGET_DIR:-$root/target}/test-results"
printf '%-12s %8s %8s %8s %8s\n' tier passed failed skipped seconds
cat "$results"/{unit,store,component,input,data,e2e,records,deploy}.tsv | awk -F'\t' '
  { printf "%-12s %8d %8d %8d %8d\n", $1, $2, $3, $4, $5; p += $2; f += $3; s += $4 }
  END { printf "%d passed, %d failed, %d skipped\n", p, f, s }'
