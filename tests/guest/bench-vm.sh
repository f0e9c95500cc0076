#!/bin/bash
# bench-vm.sh - the rows of the benchmarks that need a Linux guest, each beside its target: `make bench-vm`.
#
#   bench-vm.sh [-s] UNVME INSTRUCTIONS JSON
#
# UNVME is the program, INSTRUCTIONS the example of the crate unvme with markers (neither in /tmp, which the
# guest does not share), JSON where the rows go. -s is a smoke run: too short to mean anything. Every ratio is
# of two sides that alternate in one guest, and is the median of the rounds. Five guests: QEMU's NVMe
# controller under our VFIO path, our passthrough and fio; the same with a plugin that counts instructions
# (instructions.c); a served virtual SSD beside QEMU's controller, both under the kernel's driver and fio;
# databases on QEMU's controller, for which libunvme_preload.so beside UNVME and WiredTiger are needed; the
# same with the plugin, not in a smoke run.
# ENVIRONMENT
#   BENCH_ONLY      io or db: only the first three guests, or only the others
#   WIREDTIGER      what scripts/wiredtiger.sh has built (default: target/wiredtiger of this checkout)
#   BENCH_ROUNDS    rounds of each comparison (default 5)
#   BENCH_SECONDS   seconds of each measurement (default 2)
#   BENCH_KARGS     more kernel arguments for the guest with QEMU's controller, such as iommu=pt
set -u
HERE=$(dirname "$(readlink -f "$0")")
die() { echo "bench-vm: $*" >&2; exit 2; }
rounds=${BENCH_ROUNDS:-5} seconds=${BENCH_SECONDS:-2} reads=1000 records=100000 smoke=''
# Whole seconds: fio takes a fraction for none, and then reads the whole drive.
while getopts s o; do
  case $o in s) smoke=1 rounds=1 seconds=1 reads=50 records=10000 ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
[ $# = 3 ] || { sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
only=${BENCH_ONLY:-}
case $only in '' | io | db) ;; *) die "BENCH_ONLY=$only: io or db" ;; esac
unvme=$(readlink -f "$1") instructions='' json=$3
[ "$only" = db ] || instructions=$(readlink -f "$2")
for program in "$unvme" ${instructions:+"$instructions"}; do [ -x "$program" ] || die "no program $program: build it first"; done

wiredtiger=$(readlink -m "${WIREDTIGER:-$HERE/../../target/wiredtiger}")
work=$(mktemp -d "${TMPDIR:-/tmp}/bench-vm.XXXXXX") || die "mktemp"
export UNVME_HOME=$work/home
server=''
trap '[ -z "$server" ] || kill "$server" 2> /dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
"$HERE/guest.sh" prepare || exit
"$HERE/guest.sh" about > "$work/about.txt" || exit

limit=$((120 + rounds * 60))

drive() {
  echo "bench-vm: QEMU's controller, $rounds rounds" >&2
  "$HERE/guest.sh" run -d "$work" -t $limit -i -a "${BENCH_KARGS:-}" -n null \
    "$HERE/bench-io.sh" drive "$unvme" "$rounds" "$seconds" > "$work/guest.txt" || die "the guest with QEMU's controller failed"
}

build_counter() {
  cc -shared -fPIC -O2 -o "$work/instructions.so" "$HERE/instructions.c" || die "cannot build instructions.c"
}

count_instructions() {
  echo "bench-vm: instructions" >&2
  build_counter
  GUEST_ACCEL=tcg "$HERE/guest.sh" run -d "$work" -t 300 -i -n null \
    -q -plugin -q "$work/instructions.so" -q -d -q plugin -q -D -q "$work/instructions.txt" \
    "$HERE/bench-io.sh" instructions "$instructions" "$reads" || die "the guest that counts instructions failed"
}

# serve MEDIA: at $work/socket, by the second processor. QEMU has the first: there are three busy threads.
serve() {
  "$unvme" serve "$1" --socket "$work/socket" --core 1 > "$work/serve.txt" 2>&1 &
  server=$!
  for _ in $(seq 100); do [ -S "$work/socket" ] && return; sleep 0.1; done
  die "unvme serve $1: $(cat "$work/serve.txt")"
}

served() {
  echo "bench-vm: the served virtual SSD, $rounds rounds" >&2
  serve mem:block:1G,media=null
  taskset -c 0 "$HERE/vfio-user.sh" -d "$work" -t $limit \
    -q -device -q pcie-root-port,id=rp9,chassis=9,slot=9 -q -blockdev -q null-co,node-name=own,size=1073741824,read-zeroes=off \
    -q -device -q nvme,id=own,serial=QEMU,bus=rp9 -q -device -q nvme-ns,drive=own,bus=own,nsid=1 \
    "$work/socket" "$HERE/bench-io.sh" kernel "$rounds" "$seconds" || die "the guest with the served SSD failed"
  # Nanoseconds on a processor and waiting for one, of the thread that does the device's work: the busiest.
  cat /proc/"$server"/task/*/schedstat 2> /dev/null | sort -rn | head -1 > "$work/served.txt"
}

# databases_lack: builds YCSB's generator; prints what the databases need and is not there.
databases_lack() {
  local library
  library=$(dirname "$unvme")/libunvme_preload.so
  [ -e "$wiredtiger/version" ] || { echo "$wiredtiger/version: build it with \`make wiredtiger\`"; return; }
  [ -e "$library" ] || { echo "$library: cargo build --release -p unvme-preload"; return; }
  cc -O2 -std=gnu11 -I"$wiredtiger/include" "$HERE/../../share/unvme/ycsb/ycsb_wt.c" -o "$work/ycsb_wt" \
    -L"$wiredtiger/lib" "-Wl,-rpath,$wiredtiger/lib" -lwiredtiger -lm -lpthread 2> "$work/cc.txt" || echo "cannot build ycsb_wt.c"
}

# database_guest OPTION... -- ARGUMENT...: of guest.sh, and of bench-db.sh. The drive is in files in memory:
# syncs of the host's disk would be what takes the time. QEMU translates `rep movsb` byte by byte: a processor
# that says it is fast would have the guest's kernel copy so.
database_guest() {
  local options=() memory=${TMPDIR:-/tmp}
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  [ ! -w /dev/shm ] || memory=/dev/shm
  ! grep -q ', tcg,' "$work/about.txt" || options+=(-q -cpu -q "max,la57=off,erms=off,fsrm=off")
  TMPDIR=$memory "$HERE/guest.sh" run -d "$work" -t $((2 * limit)) -i -a "${BENCH_KARGS:-}" -s 512M -n plain -n +plain \
    "${options[@]}" "$HERE/bench-db.sh" "$@" || die "the guest with databases failed"
}

databases() {
  local reason
  reason=$(databases_lack)
  if [ -n "$reason" ]; then echo "$reason" > "$work/lacks.txt"; return; fi
  echo "bench-vm: databases, $rounds rounds" >&2
  database_guest -- timed "$unvme" "$wiredtiger" "$work/ycsb_wt" "$rounds" "$records" $((2 * seconds))
  [ -z "$smoke" ] || return
  echo "bench-vm: databases, instructions" >&2
  cc -O2 -o "$work/mark" "$HERE/mark.c" || die "cannot build mark.c"
  build_counter
  GUEST_ACCEL=tcg database_guest -q -plugin -q "$work/instructions.so" -q -d -q plugin -q -D -q "$work/database-instructions.txt" \
    -- counted "$unvme" "$wiredtiger" "$work/ycsb_wt" 1 "$records" "$work/mark"
}

[ "$only" = db ] || { drive; count_instructions; served; }
[ "$only" = io ] || databases
python3 "$HERE/bench-rows.py" "$work" "$json" "${only:-io,db}" "${smoke:+smoke}"
