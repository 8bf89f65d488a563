#!/usr/bin/env bash
# Does `ringlog-bench quick` run everywhere it should? Tiny sizes, figures of no worth:
#   1. as the caller, 2. as a plain user with 8 MiB of locked memory, 3. where io_uring is forbidden.
# 2 and 3 need root and are skipped with a line without it. Restores what it changes.
# Usage: scripts/smoke.sh     (needs target/release/ringlog-bench)
set -euo pipefail
cd "$(dirname "$0")/.."
bench=$PWD/target/release/ringlog-bench
[ -x "$bench" ] || { echo "build first: cargo build --release --workspace" >&2; exit 2; }
work=$(mktemp -d)
switch=/proc/sys/kernel/io_uring_disabled
before=
finish() {
  if [ -n "$before" ]; then echo "$before" >"$switch"; fi
  rm -rf "$work"
}
trap finish EXIT

echo "== as $(id -un)"
"$bench" quick --smoke --dir "$work/own"

if [ "$(id -u)" != 0 ]; then
  echo "not root: the plain user and the forbidden ring are skipped"
  exit 0
fi

echo "== as nobody, 8 MiB of locked memory"
cp "$bench" "$work/ringlog-bench"
mkdir -p "$work/nobody" && chmod 755 "$work" && chown nobody "$work/nobody"
(ulimit -l 8192 && setpriv --reuid=nobody --regid=nogroup --clear-groups \
  "$work/ringlog-bench" quick --smoke --dir "$work/nobody")

echo "== io_uring forbidden"
if [ -w "$switch" ]; then
  before=$(cat "$switch")
  echo 2 >"$switch"
  "$bench" quick --smoke --dir "$work/forbidden" | tee "$work/forbidden.txt"
  grep -q syscall "$work/forbidden.txt"
else
  echo "this kernel has no $switch: skipped"
fi
echo "smoke: all three ran"
