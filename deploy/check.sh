#!/usr/bin/env bash
# Checks what can be checked of the deployment without a cluster or a container engine: the manifests
# (check.py), their settings against the binary itself, and the image's libraries against what the
# binary links. An image is not built here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target="${CARGO_TARGET_DIR:-$here/../target}"
binary="${KREPLICATOR_BIN:-$target/debug/kreplicator}"
venv="$target/tools/deploy-check"
results="$target/test-results"
mkdir -p "$results"
started=$SECONDS

skip() {
  echo "skipped: deploy: $1"
  printf 'deploy\t0\t0\t1\t0\n' >"$results/deploy.tsv"
  case ",${KREPLICATOR_REQUIRE:-}," in *,deploy,*) exit 1 ;; esac
  exit 0
}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv" 2>/dev/null || skip "no Python 3 with venv"
fi
"$venv/bin/pip" install --quiet 'kubernetes-validate==1.37.0' || skip "PyPI cannot be reached"

failed=0
log=$(mktemp)
"$venv/bin/python" "$here/check.py" "$here/kubernetes" 1.29 1.34 1.37 | tee "$log" || failed=1

say() { # RESULT TEXT
  echo "$1: $2" | tee -a "$log"
  [ "$1" = ok ] || failed=1
}
work=$(mktemp -d)
trap 'rm -rf "$work" "$log"' EXIT
"$venv/bin/python" - "$here/kubernetes/config.yaml" "$work" <<'PY'
import pathlib, sys, yaml
for name, text in yaml.safe_load(open(sys.argv[1]))["data"].items():
    pathlib.Path(sys.argv[2], name).write_text(text)
PY
for service in controller worker; do
  upper=${service^^}
  if env "KREPLICATOR__${upper}__ID=pod-0" "KREPLICATOR__${upper}__ADVERTISED_ADDRESS=10.0.0.1:7070" \
    "$binary" "$service" --config "$work/$service.yaml" --print-config >"$work/out" 2>&1; then
    say ok "the binary accepts the ConfigMap's $service.yaml"
  else
    say FAILED "the binary refuses the ConfigMap's $service.yaml: $(cat "$work/out")"
  fi
done

# Package of the final image that brings each library the binary links, beyond the base system's.
declare -A brings=([libssl.so.3]=libssl3 [libcrypto.so.3]=libssl3 [libz.so.1]=zlib1g)
final=$(sed -n '/^FROM debian/,$p' "$here/Dockerfile")
for library in $(ldd "$binary" | awk '/=>/ {print $1}' | grep -vE '^(libc|libm|libgcc_s|libdl|libpthread|librt)\.so'); do
  package=${brings[$library]:-}
  if [ -n "$package" ] && grep -qw "$package" <<<"$final"; then
    say ok "the image brings $library"
  else
    say FAILED "the image does not bring $library, which the binary links"
  fi
done

passed=$(grep -c '^ok: ' "$log" || true)
failures=$(grep -c '^FAILED: ' "$log" || true)
printf 'deploy\t%s\t%s\t0\t%s\n' "$passed" "$failures" "$((SECONDS - started))" >"$results/deploy.tsv"
exit $failed
