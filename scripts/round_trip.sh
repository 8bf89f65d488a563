#!/usr/bin/env bash
# Does a large real file survive the server, a kill -9 included? A text file of at least 200 MB,
# made from sources that are on this machine, goes in through `ringlog produce` and comes out
# through `ringlog consume`; `cmp` must find no difference:
#   1. plain, 2. with zstd, 3. with `--acks durable` and a kill -9 of the server in the middle: the
#   log must be a prefix of the file that holds every acked line, and the producer's resume must
#   complete it without a gap or a repeat.
# Usage: scripts/round_trip.sh [MEGABYTES] [ENGINE]     (needs target/release/ringlog)
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-200}
engine=${2:-auto}
ringlog=$PWD/target/release/ringlog
[ -x "$ringlog" ] || { echo "build first: cargo build --release --workspace" >&2; exit 2; }

mkdir -p target
work=$(mktemp -d "$PWD/target/round-trip.XXXXXX")
server=
finish() {
  if [ -n "$server" ]; then kill -9 "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

start() { # port (0: any)
  "$ringlog" serve --data-dir "$work/data" --listen "127.0.0.1:$1" --shards 1 --engine "$engine" \
    >"$work/serve.out" 2>>"$work/serve.log" &
  server=$!
  for _ in $(seq 600); do
    address=$(sed -n 's/^listening on //p' "$work/serve.out" | head -n 1)
    if [ -n "$address" ]; then return; fi
    kill -0 "$server" 2>/dev/null || { cat "$work/serve.log" >&2; exit 1; }
    sleep 0.05
  done
  echo "the server does not listen" >&2
  exit 1
}

echo "== a file of at least $megabytes MB from the sources on this machine"
sources=("${CARGO_HOME:-$HOME/.cargo}/registry/src" /usr/include /usr/share/doc)
input=$work/input.txt
want=$((megabytes * 1000 * 1000))
: >"$input"
while [ "$(stat -c %s "$input")" -lt "$want" ]; do
  before=$(stat -c %s "$input")
  { find "${sources[@]}" -type f \( -name '*.rs' -o -name '*.h' -o -name '*.md' -o -name copyright \) \
      -print0 2>/dev/null || true; } | xargs -0 cat 2>/dev/null | head -c $((want - before + 1)) >>"$input" || true
  [ "$(stat -c %s "$input")" -gt "$before" ] || { echo "no sources found on this machine" >&2; exit 1; }
done
echo >>"$input"
lines=$(wc -l <"$input")
echo "$(stat -c %s "$input") bytes, $lines lines"

start 0
port=${address##*:}
to=(--server "$address")
for codec in none zstd; do
  echo "== codec $codec"
  "$ringlog" topic create "plain-$codec" "${to[@]}"
  "$ringlog" produce "plain-$codec" --file "$input" --compression "$codec" "${to[@]}"
  "$ringlog" consume "plain-$codec" --offset earliest "${to[@]}" | cmp - "$input"
  echo "identical"
done

echo "== kill -9 in the middle, acks durable; the producer resumes by itself"
"$ringlog" topic create killed "${to[@]}"
"$ringlog" produce killed --file "$input" --acks durable "${to[@]}" >"$work/produce.out" 2>"$work/produce.err" &
producer=$!
end() { "$ringlog" offsets "$1" --time latest --json "${to[@]}" | sed -n 's/.*"offset": *\([0-9-]*\).*/\1/p' | head -n 1; }
for _ in $(seq 2000); do
  at=$(end killed || echo 0)
  if [ "${at:-0}" -gt $((lines / 3)) ]; then break; fi
  sleep 0.01
done
kill -9 "$server"; wait "$server" 2>/dev/null || true
echo "killed after offset $at of $lines"
start "$port"
wait "$producer" || { cat "$work/produce.err" >&2; exit 1; }
cat "$work/produce.out"
"$ringlog" consume killed --offset earliest "${to[@]}" | cmp - "$input"
echo "identical: no gap, no repeat"

echo "== kill -9 in the middle, the producer gives up: a prefix that holds every acked line"
"$ringlog" topic create prefix "${to[@]}"
"$ringlog" produce prefix --file "$input" --acks durable --retries 0 "${to[@]}" \
  >"$work/produce.out" 2>"$work/produce.err" &
producer=$!
for _ in $(seq 2000); do
  at=$(end prefix || echo 0)
  if [ "${at:-0}" -gt $((lines / 3)) ]; then break; fi
  sleep 0.01
done
kill -9 "$server"; wait "$server" 2>/dev/null || true
if wait "$producer"; then echo "the producer should have failed" >&2; exit 1; fi
cat "$work/produce.err"
acked=$(sed -n 's/.*records acked: *\([0-9]*\).*/\1/p' "$work/produce.out" "$work/produce.err" | tail -n 1)
start "$port"
"$ringlog" consume prefix --offset earliest "${to[@]}" >"$work/prefix.txt"
held=$(wc -l <"$work/prefix.txt")
cmp -n "$(stat -c %s "$work/prefix.txt")" "$work/prefix.txt" "$input"
[ "$held" -ge "${acked:-0}" ] || { echo "lost: $acked acked, $held held" >&2; exit 1; }
echo "$acked acked, $held held, a prefix"
"$ringlog" produce prefix --file "$input" --from-line $((held + 1)) "${to[@]}"
"$ringlog" consume prefix --offset earliest "${to[@]}" | cmp - "$input"
echo "identical after the resume"

kill -TERM "$server"; wait "$server"
server=
[ -e "$work/data/.kafka_cleanshutdown" ] || { echo "no clean marker after SIGTERM" >&2; exit 1; }
echo "round trip: all identical, stopped cleanly"
