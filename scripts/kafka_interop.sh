#!/usr/bin/env bash
# Does a real Kafka broker read what ringlog wrote, and ringlog what the broker wrote?
#   1. Kafka's dump tool finds every batch and every index of ringlog's sound: after a clean stop,
#      after a kill -9, and after the recovery from it.
#   2. A broker opens ringlog's directories twice, once recovering them (its indexes must equal
#      ours byte for byte), once trusting them; its consumer returns every record, offset, time and
#      header as `ringlog consume` does, and its list-offsets answers as ours does.
#   3. The broker appends (every codec, idempotent and not, transactions) and stops, then is
#      killed; each time ringlog opens what it left, has the same records and appends; the broker
#      opens that again.
# Each step prints a line with the seconds since the start; the first that fails ends the script. Skipped where Java or Maven is
# missing. The broker's jars come through Maven into target/kafka.
# Usage: scripts/kafka_interop.sh [release|debug] [KEEP_DIR]
set -eEuo pipefail
cd "$(dirname "$0")/.."
for tool in java javac mvn; do
  command -v "$tool" >/dev/null || { echo "kafka interop: skipped, no $tool here"; exit 0; }
done
profile=${1:-release}
bin=$PWD/target/$profile
for built in "$bin/ringlog" "$bin/examples/kafka_interop"; do
  [ -x "$built" ] && continue
  echo "build first: cargo build --workspace --bins --examples [--release]" >&2
  exit 2
done
ringlog=$bin/ringlog ours_helper=$bin/examples/kafka_interop

cache=$PWD/target/kafka
mkdir -p "$cache"
keep=${2:-}
if [ -n "$keep" ]; then mkdir -p "$keep"; fi
work=$(cd "${keep:-$(mktemp -d "$cache/run.XXXXXX")}" && pwd)
server='' broker=''
finish() {
  for pid in $server $broker; do kill -9 "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  if [ -z "$keep" ]; then rm -rf "$work"; fi
}
trap finish EXIT

step=''
begin() { step=$*; }
ok() { printf 'OK %4ds  %s%s\n' "$SECONDS" "$step" "${1:+ ($1)}"; }
fail() { printf 'FAIL      %s: %s\n' "$step" "$*" >&2; exit 1; }
trap 'printf "FAIL      %s (line %s)\n" "$step" "$LINENO" >&2' ERR

# ---- Kafka: jars, the helper, a broker

begin "Kafka's jars"
if ! cmp -s tests/kafka/pom.xml "$cache/pom.xml"; then
  cp tests/kafka/pom.xml "$cache/pom.new"
  rm -rf "$cache/lib" "$cache/pom.xml"
  mvn -q -B -f tests/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$cache/lib" \
    >"$cache/maven.log" 2>&1 || { tail -n 20 "$cache/maven.log" >&2; fail "Maven"; }
  mv "$cache/pom.new" "$cache/pom.xml"
fi
classpath="$cache/classes:$cache/lib/*"
quick=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto
  "-Dlog4j2.configurationFile=$PWD/tests/kafka/log4j2.yaml" -cp "$classpath")
if [ ! "$cache/classes/Interop.class" -nt tests/kafka/Interop.java ]; then
  javac -cp "$cache/lib/*" -d "$cache/classes" tests/kafka/Interop.java
fi
ok "$(find "$cache/lib" -name '*.jar' | wc -l) of them"

kdata=$work/kafka-data properties=$work/server.properties
mapfile -t ports < <("$ours_helper" ports)
bootstrap=127.0.0.1:${ports[0]}
cat >"$properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:${ports[1]}
listeners=PLAINTEXT://$bootstrap,CONTROLLER://127.0.0.1:${ports[1]}
advertised.listeners=PLAINTEXT://$bootstrap
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$kdata
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
EOF

broker_start() {
  java "${quick[@]}" -Xmx512m kafka.Kafka "$properties" >>"$work/broker.log" 2>&1 &
  broker=$!
}
broker_stop() {
  kill -TERM "$broker"
  wait "$broker" || true # 143: ended by the signal that asked it to
  broker=''
  [ -e "$kdata/.kafka_cleanshutdown" ] || fail "the broker did not stop cleanly"
}
broker_kill() { kill -9 "$broker"; wait "$broker" 2>/dev/null || true; broker=''; }
# Kafka's clients, one JVM for the commands on standard input.
kafka() {
  java "${quick[@]}" -Xmx512m Interop "$bootstrap" >>"$work/helper.log" 2>&1 || {
    tail -n 30 "$work/helper.log" >&2
    fail "Kafka's client: see above"
  }
}

# ---- ringlog

rdata=$work/ringlog-data to=()
serve() {
  "$ringlog" serve --data-dir "$rdata" --listen 127.0.0.1:0 --shards 1 --flush group \
    >"$work/serve.out" 2>>"$work/serve.log" &
  server=$!
  for _ in $(seq 600); do
    address=$(sed -n 's/^listening on //p' "$work/serve.out" | head -n 1)
    if [ -n "$address" ]; then to=(--server "$address"); return; fi
    kill -0 "$server" 2>/dev/null || { tail -n 20 "$work/serve.log" >&2; fail "ringlog ended"; }
    sleep 0.05
  done
  fail "ringlog does not listen"
}
serve_stop() {
  kill -TERM "$server"; wait "$server"; server=''
  [ -e "$rdata/.kafka_cleanshutdown" ] || fail "ringlog did not stop cleanly"
}
serve_kill() { kill -9 "$server"; wait "$server" 2>/dev/null || true; server=''; }

mapfile -t orders < <("$ours_helper" topics)
topics=()
for order in "${orders[@]}"; do read -r _ topic _ <<<"$order"; topics+=("$topic"); done
partitions() { (cd "$1" && for topic in "${topics[@]}"; do printf '%s\n' "$topic"-[0-9]*; done); }

# Times of records and a millisecond to both sides, at most 60 records a partition, and the
# specials, as "topic partition time" lines; from the records in a folder.
questions() {
  for topic in "${topics[@]}"; do
    awk -F '[:,]' -v topic="$topic" '{ print topic, $2, $6 }' "$1/$topic.json" | sort -u |
      awk '{ times[$1 " " $2, n[$1 " " $2]++] = $3 }
           END { for (partition in n) {
             for (i = -3; i < 2; i++) print partition, i
             step = int(n[partition] / 60) + 1
             for (i = 0; i < n[partition]; i += step)
               for (near = -1; near < 2; near++)
                 if (times[partition, i] + near >= 0)
                   printf "%s %.0f\n", partition, times[partition, i] + near
           } }'
  done | sort -u >"$1/questions"
}
# What ringlog says of all topics, into a folder: records, and answers about times.
ours() {
  mkdir -p "$1"
  for topic in "${topics[@]}"; do "$ringlog" consume "$topic" --json "${to[@]}" >"$1/$topic.json"; done
  questions "$1"
  "$ours_helper" answers "$address" "$1/questions" >"$1/offsets"
}
# The same from the broker.
theirs() {
  mkdir -p "$1"
  for topic in "${topics[@]}"; do echo "consume $topic $1/$topic.json"; done | kafka
  questions "$1"
  echo "offsets $1/questions $1/offsets" | kafka
}
same() {
  for file in "${topics[@]/%/.json}" offsets; do
    cmp -s "$1/$file" "$2/$file" && continue
    diff "$1/$file" "$2/$file" | cut -c 1-300 | head -n 10 >&2 || true
    fail "$file differs (< $(basename "$1"), > $(basename "$2"))"
  done
  ok "$(cat "$1"/*.json | wc -l) records, $(wc -l <"$1/offsets") answers"
}

# ---- moving partitions between the two data directories

checkpoints=(recovery-point-offset-checkpoint log-start-offset-checkpoint replication-offset-checkpoint)
# Every file but partition.metadata: the topic's id is each server's own.
move() { # from, to, clean marker: keep or drop
  for partition in $(partitions "$1"); do
    find "$2/$partition" -mindepth 1 ! -name partition.metadata -delete
    find "$1/$partition" -mindepth 1 ! -name partition.metadata -exec cp -p -t "$2/$partition" {} +
  done
  for file in "${checkpoints[@]}"; do [ ! -e "$1/$file" ] || cp "$1/$file" "$2/$file"; done
  rm -f "$2/.kafka_cleanshutdown"
  if [ "$3" = keep ]; then cp "$1/.kafka_cleanshutdown" "$2/"; fi
}

# ---- Kafka's dump tool over a data directory

# "-1 is followed by N" is not one: the tool says it of every log that does not start at 0.
complaints() {
  grep -E -A 2 -e 'isvalid: false|Mismatches in|timestamp mismatch|out of order timestamp' \
    -e 'not found in the log|invalid bytes|[Ee]xception|EXCEPTION|corrupt' \
    -e '^  [0-9]+ is followed by' "$1" || true
}
dump_is_sound() { # data dir, all (indexes too) or logs
  local dir=$1 files=() indexes out
  for partition in $(partitions "$dir"); do
    if [ "$2" = all ]; then
      files+=("$dir/$partition"/*.log "$dir/$partition"/*index "$dir/$partition"/*.snapshot)
    else
      files+=("$dir/$partition"/*.log)
    fi
  done
  mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v '\*' || true)
  out=$work/dump-$(basename "$dir")
  rm -f "$out".*
  mapfile -t indexes < <(printf '%s\n' "${files[@]}" | grep -E '\.(time)?index$' || true)
  { echo "dump $out.shallow -- ${files[*]}"
    echo "dump $out.deep --deep-iteration -- ${files[*]}"
    if [ "$2" = all ]; then
      echo "dump $out.sanity --index-sanity-check -- ${indexes[*]}"
    fi; } | kafka
  for kind in "$out".*; do
    found=$(complaints "$kind")
    [ -z "$found" ] || { head -n 10 <<<"$found" >&2; fail "$(basename "$kind")"; }
  done
  if [ "$2" = all ]; then
    passed=$(grep -c 'passed sanity check' "$out.sanity" || true)
    [ "$passed" = "${#indexes[@]}" ] || fail "$passed of ${#indexes[@]} indexes pass the sanity check"
  fi
  ok "${#files[@]} files, $(grep -c '^baseOffset' "$out.shallow") batches"
}

# ---- the run; the broker makes its topics meanwhile

java "${quick[@]}" kafka.tools.StorageTool format --standalone -t "$(
  java "${quick[@]}" kafka.tools.StorageTool random-uuid)" -c "$properties" >>"$work/broker.log" 2>&1
broker_start
begin "ringlog writes ${#topics[@]} topics and stops cleanly"
serve
"$ours_helper" write "$address"
ours "$work/written"
serve_stop
ok

begin "the broker makes the same topics"
printf '%s\n' "${orders[@]}" | kafka
broker_stop
ok

begin "dump, clean: every batch valid, every index consistent"
cp -a "$rdata" "$work/clean"
dump_is_sound "$work/clean" all

begin "dump, killed: every whole batch valid"
serve
"$ours_helper" append "$address"
serve_kill
cp -a "$rdata" "$work/killed"
dump_is_sound "$work/killed" logs

begin "ringlog recovers what was killed"
serve
ours "$work/recovered"
serve_stop
ok
begin "dump, recovered: every batch valid, every index consistent"
cp -a "$rdata" "$work/mended"
dump_is_sound "$work/mended" all

begin "a broker recovers ringlog's directory: records, offsets, times, headers"
move "$work/clean" "$kdata" drop
broker_start
theirs "$work/theirs-recovered"
same "$work/written" "$work/theirs-recovered"
broker_stop
begin "the indexes it rebuilt are ours, byte for byte"
count=0
for partition in $(partitions "$work/clean"); do
  for index in "$work/clean/$partition"/*index; do
    cmp "$index" "$kdata/$partition/$(basename "$index")" || fail "$partition"
    count=$((count + 1))
  done
done
ok "$count files"

begin "a broker trusts ringlog's directory: records, offsets, times, headers"
move "$work/mended" "$kdata" keep
broker_start
theirs "$work/theirs-trusted"
same "$work/recovered" "$work/theirs-trusted"

produce() { # round
  { for partition in $(partitions "$rdata"); do
      echo "produce ${partition%-*} ${partition##*-} $1"
    done
    echo "transactions rolls 0 $1"
    echo "transactions shapes-zstd 0 $1"; } | kafka
}

begin "the broker appends and stops cleanly; ringlog has the same records"
produce 1
theirs "$work/theirs-clean"
broker_stop
move "$kdata" "$rdata" keep
serve
ours "$work/ours-clean"
same "$work/ours-clean" "$work/theirs-clean"
begin "ringlog appends to what the broker left"
"$ours_helper" append "$address"
ours "$work/ours-appended"
serve_stop
ok

begin "the broker opens that, and has the same records"
cp -a "$rdata" "$work/appended"
move "$work/appended" "$kdata" keep
broker_start
theirs "$work/theirs-appended"
same "$work/ours-appended" "$work/theirs-appended"

begin "the broker appends and is killed; ringlog has the same records"
produce 2
theirs "$work/theirs-killed"
broker_kill
move "$kdata" "$rdata" drop
serve
ours "$work/ours-killed"
same "$work/ours-killed" "$work/theirs-killed"
begin "ringlog appends to what the killed broker left"
"$ours_helper" append "$address"
ours "$work/ours-last"
serve_stop
ok
begin "dump, last: every batch valid, every index consistent"
cp -a "$rdata" "$work/last"
dump_is_sound "$work/last" all

begin "the broker opens that, and has the same records"
move "$work/last" "$kdata" keep
broker_start
theirs "$work/theirs-last"
same "$work/ours-last" "$work/theirs-last"
broker_stop
echo "kafka interop: all the same"
