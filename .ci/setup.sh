#!/usr/bin/env bash
# Makes this machine able to build (`setup.sh build`) or to build and test (`setup.sh test`).
# As root on Debian or Ubuntu it installs what is missing; elsewhere it says what to install.
# Prints nothing when everything is there.
set -euo pipefail
want=${1:-build}
root=$(cd "$(dirname "$0")/.." && pwd)
tools="$root/target/tools"

missing=()   # what a person must know is missing
packages=()  # Debian packages that bring it
need() { missing+=("$1"); packages+=("${@:2}"); }
has() { command -v "$1" >/dev/null 2>&1; }

if ! has cargo; then
  echo "setup: no cargo found. Install Rust with rustup (https://rustup.rs); rust-toolchain.toml names the version." >&2
  exit 1
fi
has cc || need "a C compiler" gcc libc6-dev
has g++ || need "a C++ compiler" g++
has make || need make make
has perl || need perl perl
has pkg-config || need pkg-config pkg-config
if has pkg-config; then
  pkg-config --exists openssl || need "OpenSSL headers" libssl-dev
  pkg-config --exists zlib || need "zlib headers" zlib1g-dev
else
  need "OpenSSL and zlib headers" libssl-dev zlib1g-dev
fi
protoc_ready() {
  local probe
  probe=$(mktemp -d)
  echo 'syntax = "proto3"; import "google/protobuf/descriptor.proto";' >"$probe/probe.proto"
  "${PROTOC:-protoc}" -I "$probe" --descriptor_set_out=/dev/null "$probe/probe.proto" >/dev/null 2>&1
  local result=$?
  rm -r "$probe"
  return $result
}
protoc_ready || [ -x "$tools/bin/protox" ] || need "protoc with the well-known types" protobuf-compiler libprotobuf-dev
if [ "$want" = test ]; then
  has openssl || need "openssl (makes the certificates of tests)" openssl
  has java || need "Java 17 or later (runs the real Kafka brokers)" default-jre-headless
  has mvn || need "Maven (brings the real Kafka brokers)" maven
  has python3 || need "Python 3 (checks the Kubernetes manifests)" python3
  python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || need "Python's venv" python3-venv
fi

if [ ${#missing[@]} -gt 0 ]; then
  if has apt-get && [ "$(id -u)" = 0 ]; then
    echo "setup: installing ${packages[*]}" >&2
    log=$(mktemp)
    # A lost connection to the mirror is worth a second try.
    for attempt in 1 2; do
      if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
        break
      fi
      if [ $attempt = 2 ]; then
        cat "$log" >&2
        echo "setup: apt-get could not install ${packages[*]}; see above" >&2
        exit 1
      fi
    done
    rm -f "$log"
  else
    # protoc is the one that cargo can bring.
    rest=()
    for thing in "${missing[@]}"; do
      case $thing in
        protoc*)
          echo "setup: no protoc; building protox in its place (about a minute)" >&2
          cargo install --quiet --root "$tools" --features bin protox
          ;;
        *) rest+=("$thing") ;;
      esac
    done
    if [ ${#rest[@]} -gt 0 ]; then
      echo "setup: missing: $(printf '%s; ' "${rest[@]}")" >&2
      echo "setup: on Debian or Ubuntu: sudo apt-get install ${packages[*]}" >&2
      exit 1
    fi
  fi
fi
