#!/usr/bin/env bash
# What a change must pass before it lands: format, lints, all tests (tidy among them), docs, and
# every fuzz target for half a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
cargo test --workspace
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
scripts/fuzz.sh 30
