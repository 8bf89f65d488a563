#!/usr/bin/env bash
# What does a start cost? (1) After kill -9 of a log of twenty and more sealed 64 MiB segments: how
# many bytes are read, then with one sealed index damaged. (2) Ten thousand empty partitions within
# 4096 open files: start, stop, memory. Writes 3 GB below target/ and removes them; about a minute.
# Needs: cargo build --release --workspace, python3.
set -euo pipefail
cd "$(dirname "$0")/.."
ringlog=$PWD/target/release/ringlog
mkdir -p target/tmp
work=$(mktemp -d target/tmp/log-layer.XXXXXX)
server=
trap '[ -n "$server" ] && kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# serve LOG FLAG..: starts a server, waits until it serves, says how long that took.
serve() {
  local log=$1 since
  shift
  since=$(now_ms)
  "$ringlog" serve --listen 127.0.0.1:0 "$@" >"$log" 2>&1 &
  server=$!
  until grep -q 'serving \[' "$log"; do
    kill -0 "$server" || { cat "$log" >&2; exit 1; }
    sleep 0.02
  done
  took=$(($(now_ms) - since))
  RINGLOG_SERVER=$(sed -n 's/.*serving \[\([0-9.:]*\).*/\1/p' "$log")
  export RINGLOG_SERVER
}

finish() { # SIGNAL
  local since
  since=$(now_ms)
  kill "-$1" "$server"
  wait "$server" 2>/dev/null || true
  server=
  took=$(($(now_ms) - since))
}

lines() { # RECORDS, of 104 bytes that hardly repeat
  python3 -c 'import random, sys
random.seed(7)
for _ in range(int(sys.argv[1])): print("%0103x" % random.getrandbits(412))' "$1"
}

echo "== a log of 64 MiB segments"
serve first.log --data-dir d --shards 1 --checkpoint-interval 2s
"$ringlog" topic create t --config segment.bytes=67108864
lines 12500000 | "$ringlog" produce t --acks durable 2>&1 | tail -n 1
sleep 4 # a checkpoint
lines 20000 | "$ringlog" produce t --acks durable 2>&1 | tail -n 1
finish KILL
ls d/t-0/*.log | wc -l | sed 's/$/ segments; killed/'
serve second.log --data-dir d --shards 1
grep -E 'log recovered' second.log
finish KILL
damaged=$(ls d/t-0/*.index | sed -n 5p)
printf 'damaged!' | dd of="$damaged" bs=1 seek=64 conv=notrunc status=none
serve third.log --data-dir d --shards 1
grep -E 'log recovered|rebuilt' third.log
finish TERM
rm -r d

echo "== ten thousand empty partitions, 4096 open files"
ulimit -n 4096
memory() { awk '/VmRSS/ {print $2 " KiB"}' "/proc/$server/status"; }
serve fourth.log --data-dir e --shards 2
echo "memory with none: $(memory)"
for topic in 0 1 2 3 4 5 6 7 8 9; do "$ringlog" topic create "k$topic" --partitions 1000 >create.log; done
finish TERM
serve fifth.log --data-dir e --shards 2
echo "start after a clean stop: $took ms, memory: $(memory), open files: $(ls "/proc/$server/fd" | wc -l)"
finish TERM
echo "clean stop: $took ms"
serve sixth.log --data-dir e --shards 2
finish KILL
serve seventh.log --data-dir e --shards 2
echo "start after kill -9: $took ms"
finish TERM
test -e e/.kafka_cleanshutdown && echo "stopped cleanly: $took ms"
