#!/usr/bin/env bash
# Runs one tier of tests (`tier.sh NAME THREADS CARGO-TEST-ARGUMENTS… [-- FILTERS…]`) and keeps its result for the
# summary. THREADS is 1 where real components share the machine and times are measured. With filters only
# the tests whose names contain one of them run.
set -uo pipefail
name=$1
threads=$2
shift 2
arguments=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  arguments+=("$1")
  shift
done
[ $# -eq 0 ] || shift
root=$(cd "$(dirname "$0")/.." && pwd)
results="${CARGO_TARGET_DIR:-$root/target}/test-results"
mkdir -p "$results"
log="$results/$name.log"
started=$SECONDS
cargo test --locked --no-fail-fast "${arguments[@]}" -- --test-threads="$threads" "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
passed=$(sed -nE 's/^test result: .* ([0-9]+) passed.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
failed=$(sed -nE 's/^test result: .* ([0-9]+) failed.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
skipped=$(grep -c '^skipped: ' "$log")
printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$passed" "$failed" "$skipped" "$((SECONDS - started))" >"$results/$name.tsv"
for filter in "$@"; do
  # Else a test that gets another name would leave its tier, and nobody would notice.
  if ! grep -qa "^test .*$filter" "$log"; then
    echo "$name: no test has $filter in its name"
    status=1
  fi
done
if [ "$failed" -gt 0 ]; then
  # Again at the end: between a test's name and its message are the logs of all that it had started.
  echo "$name: what failed and why"
  grep -a -A 2 "^thread '.* panicked at" "$log" | cut -c 1-1000
fi
exit "$status"
