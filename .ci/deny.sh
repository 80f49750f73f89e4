#!/usr/bin/env bash
# Licences, banned crates and sources, by deny.toml. Uses cargo-deny from the path, else builds it
# once into target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
tools="$PWD/target/tools"
if ! command -v cargo-deny >/dev/null && [ ! -x "$tools/bin/cargo-deny" ]; then
  echo "lint: building cargo-deny (once, some minutes)" >&2
  # Unoptimised: it is built in half the time and runs for a second.
  cargo install --quiet --locked --debug --root "$tools" --version "$version" cargo-deny
fi
PATH="$tools/bin:$PATH" cargo-deny --locked check bans licenses sources
