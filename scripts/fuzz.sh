#!/usr/bin/env bash
# Feeds every fuzz target for a while, beginning with its committed corpus. Skipped with a line
# where cargo-fuzz or a nightly compiler is missing. What is found stays in fuzz/artifacts: give it
# a name, put it into fuzz/corpus, and `cargo test --workspace --test fuzz_corpus` replays it.
# Usage: scripts/fuzz.sh [SECONDS a target, 30] [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}
shift || true
cargo fuzz --version >/dev/null 2>&1 || {
  echo "fuzz: skipped, no cargo-fuzz here (cargo install cargo-fuzz --locked --version 0.13.2)"
  exit 0
}
cargo +nightly --version >/dev/null 2>&1 || { echo "fuzz: skipped, no nightly compiler here"; exit 0; }
if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(cargo fuzz list --fuzz-dir fuzz); fi
# Without a sanitizer: the code under test has no `unsafe`, and runs several times as often.
cargo +nightly fuzz build --fuzz-dir fuzz --sanitizer none

one() { # seconds, target
  local found=fuzz/target/found/$2 log=fuzz/target/$2.log
  mkdir -p "$found"
  if ! cargo +nightly fuzz run --fuzz-dir fuzz --sanitizer none "$2" "$found" "fuzz/corpus/$2" -- \
    -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    return 1
  fi
  echo "fuzz: $2 held for $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
}
export -f one
printf '%s\n' "${targets[@]}" | xargs -P 2 -I '{}' bash -euo pipefail -c "one $seconds {}"
