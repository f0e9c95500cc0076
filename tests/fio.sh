#!/usr/bin/env bash
# fio itself with the engine for unvme: what it writes it verifies, on blocks, pairs and placements, on
# devices of this process, of another one and of the network; job files that are handed out, and what bad
# input gets.
#
#   tests/fio.sh ENGINE UNVME
#
# fio's own test jobs come from its source: FIO_SRC, or where scripts/fio.sh has put it, beside the engine.
set -euo pipefail
engine=$(readlink -f "$1")
unvme=$(readlink -f "$2")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
export UNVME_HOME=$work/home
servers=()
trap 'kill -9 "${servers[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
passed=0

fail() {
  echo "tests/fio.sh: $*" >&2
  [ ! -f out ] || tail -n 40 out >&2
  exit 1
}

# Runs fio with the engine, quietly: its output is in `out`, its JSON in `json`.
run() { timeout 300 fio --output-format=normal,json --ioengine="$engine" --name=t --filename="$@" >out 2>&1; }

# A run that succeeds, described first.
good() {
  local what=$1
  shift
  run "$@" || fail "$what: fio failed: $*"
  passed=$((passed + 1))
}

# A run that fails with a line that says why.
bad() {
  local what=$1 line=$2
  shift 2
  if run "$@"; then fail "$what: fio succeeded: $*"; fi
  grep -qE "$line" out || fail "$what: no line like \`$line\`"
  passed=$((passed + 1))
}

says() { grep -qE "$1" out || fail "no line like \`$1\`"; }

# Starts a server and waits for what it says.
serve() {
  local log=$1
  shift
  "$unvme" serve "$@" >"$log" 2>&1 &
  servers+=($!)
  for _ in $(seq 600); do
    if grep -q 'serving ' "$log"; then return; fi
    sleep 0.1
  done
  cat "$log" >&2
  fail "the server does not serve"
}

blocks='mem\:block\:64M'
pairs='mem\:kv\:128M'
small=(--rw=randwrite --bs=4k --iodepth=32 --size=8M --verify=crc32c --verify_fatal=1)

fio --enghelp="$engine" >help
for option in json_path ks kv kv_read_miss kv_trim completion queues nsid hdgst ddgst device_options; do
  grep -q "^$option *:" help || fail "--enghelp does not tell of $option"
done

# Blocks.
good 'every block with its checksum' "$blocks" "${small[@]}"
says 'err= 0'
for method in md5 crc64 sha256 xxhash pattern; do
  extra=()
  if [ $method = pattern ]; then extra=(--verify_pattern=0xdeadbeef); fi
  good "verify=$method" "$blocks" "${small[@]}" --verify=$method "${extra[@]}" --size=2M
done
good 'blocks of many sizes' "$blocks" "${small[@]}" --bssplit=512/20:4k/40:64k/20:1m/20 --iodepth=16
good 'commands longer than the device takes' "$blocks" "${small[@]}" --bs=16m --size=64M --iodepth=2
good 'a depth beyond what queues have' "$blocks" "${small[@]}" --iodepth=4096 --iodepth_batch=64 \
  --iodepth_batch_complete_min=8 --iodepth_batch_complete_max=64 --size=32M
good 'mixed, with syncs, trims after it' "$blocks" --rw=randrw --bs=4k --iodepth=32 --size=16M --fsync=8 --fdatasync=5
good 'through to the media' "$blocks" "${small[@]}" --sync=1
good 'trims' "$blocks" --rw=randtrimwrite --bs=4k --iodepth=32 --size=8M
good 'trims as zeroes' "$blocks" --zeroes=1 --rw=randtrim --bs=4k --iodepth=32 --size=8M
good 'reads as Verify' "$blocks" --verify_command=1 --rw=randread --bs=4k --iodepth=32 --size=8M
good 'several jobs, each its part' "$blocks" "${small[@]}" --numjobs=3 --size=16M --offset_increment=16M --group_reporting
good 'jobs as threads' "$blocks" "${small[@]}" --numjobs=2 --thread --size=16M --offset_increment=16M
good 'several devices' "$blocks:mem\\:block\\:32M,block=4096" "${small[@]}" --size=100%
good 'part of a device' "$blocks" "${small[@]}" --offset=25% --size=50%
good 'several queues, sleeping' "$blocks" "${small[@]}" --queues=3 --completion=hybrid
good 'a rate that is kept' "$blocks" --rw=randread --bs=4k --iodepth=4 --rate_iops=2000 --size=8M --time_based --runtime=2
rate=$(sed -n '/^{/,/^}/p' out | python3 -c 'import json,sys; print(int(json.load(sys.stdin)["jobs"][0]["read"]["iops"]))')
if [ "$rate" -gt 2100 ]; then fail "a rate of 2000: $rate"; fi
good 'commands issued by a thread' "$blocks" --io_submit_mode=offload --iodepth=1 --rw=write --bs=4k --size=4K
good 'commands issued by threads' "$blocks" "${small[@]}" --io_submit_mode=offload --iodepth=4 --size=1M
good 'threads on several devices and queues' "$blocks:mem\\:block\\:32M" "${small[@]}" --io_submit_mode=offload \
  --iodepth=4 --queues=2 --completion=hybrid --size=1M
good 'a rate that threads keep' "$blocks" --io_submit_mode=offload --rate_iops=500 --rw=randread --bs=4k --iodepth=4 \
  --size=8M --time_based --runtime=1
good 'buffered is direct' "$blocks" "${small[@]}" --direct=0 --numjobs=2 --size=1M --offset_increment=1M
[ "$(grep -c 'direct=0 is as direct=1' out)" = 1 ] || fail 'one note on direct=0 is expected'
good 'mixed commands verified by their log' "$blocks" --rw=randrw --bs=4k --size=1M --verify=md5 --experimental_verify=1
says 'verified by the log of writes'
good 'repeated commands verified' "$blocks" --rw=randwrite --bs=4k --size=1M --verify=md5 --experimental_verify=1
if grep -q 'verified by the log' out; then fail 'a job of writes alone is repeated'; fi
good 'a log is written' "$blocks" --rw=randwrite --bs=4k --size=1M --write_iolog="$work/iolog"
timeout 60 fio --ioengine="$engine" --name=t --read_iolog="$work/iolog" >out 2>&1 || fail 'a log without filename='
says 'issued rwts: total=0,256,'
passed=$((passed + 1))
good 'a latency target' "$blocks" --rw=randread --bs=4k --iodepth=32 --size=8M --time_based --runtime=2 \
  --latency_target=5s --latency_window=200ms --latency_percentile=99

# Pairs.
good 'every pair with its checksum' "$pairs" "${small[@]}"
for commands in samsung standard; do
  good "the $commands commands" "$pairs" "${small[@]}" --kv=$commands
done
for length in 4 8 255; do
  good "keys of $length bytes" "$pairs" "${small[@]}" --ks=$length --kv=samsung
done
good 'values of many sizes' "$pairs" "${small[@]}" --bssplit=1000/30:4k/40:10000/30
good 'pairs deleted, and asked for' "$pairs" --rw=randtrimwrite --bs=4k --iodepth=32 --size=8M
good 'pairs that are not there are asked for' "$pairs" --kv_trim=exist --rw=randtrim --bs=4k --size=8M
good 'misses that are reads' "$pairs" --kv_read_miss=ignore --rw=randread --bs=4k --iodepth=32 --size=8M
bad 'misses that are errors' 'Key Does Not Exist.*write the pairs first' "$pairs" --rw=randread --bs=4k --size=8M
bad 'pairs that nobody wrote cannot be verified' 'Key Does Not Exist' "$pairs" "${small[@]}" --rw=randread --verify_only
bad 'nor by ignoring misses' 'ignores no miss' "$pairs" "${small[@]}" --rw=randread --verify_only --kv_read_miss=ignore
if grep -q 'or give kv_read_miss=ignore' out; then fail 'an option is advised that was given'; fi
bad 'a miss that a thread met' 'Key Does Not Exist.*write the pairs first' "$pairs" --rw=randread --bs=4k --size=8M \
  --io_submit_mode=offload

# Slots of this machine: data stays, jobs of one run share a device, and the next run finds what was written.
"$unvme" device create 0000:01:00.0 --size 32M >/dev/null
"$unvme" device create 0000:02:00.0 --size 64M >/dev/null
"$unvme" device create 0000:03:00.0 --type kv --size 64M >/dev/null
good 'the dotted form' 0000.02.00.0 "${small[@]}" --do_verify=0
good 'written by the run before' 0000.02.00.0 "${small[@]}" --rw=randread --verify_only
good 'pairs of a slot' 0000.03.00.0 "${small[@]}" --do_verify=0
good 'pairs written by the run before' 0000.03.00.0 "${small[@]}" --rw=randread --verify_only
good 'several slots, by colon' 0000.01.00.0:0000.02.00.0 "${small[@]}" --size=100%

"$unvme" device create 0000:05:00.0 --type kv --size 64M --namespaces block:16M,block:16M,32M >/dev/null
good 'namespaces' 0000.05.00.0:0000.05.00.0,nsid=2 "${small[@]}" --size=100%
good 'a namespace of pairs beside blocks' 0000.05.00.0,nsid=3 "${small[@]}" --size=4M --bs=4000
good 'a namespace for all' 0000.05.00.0 "${small[@]}" --nsid=2 --size=100%

# Other processes and the network: jobs as processes, as fio has them, and as threads.
serve socket.log mem:block:64M --socket "$work/socket"
serve kv.log mem:kv:64M --socket "$work/kv-socket"
serve tcp.log mem:block:64M --tcp 0 --nqn nqn.2014-08.org.example:fio
tcp="tcp\\:127.0.0.1\\:$(sed -n 's/.*127\.0\.0\.1:\([0-9]*\).*/\1/p' tcp.log | head -n 1)/nqn.2014-08.org.example\\:fio"
for device in "vfio-user\\:$work/socket" "$tcp"; do
  good "$device: processes" "$device" "${small[@]}" --numjobs=2 --size=16M --offset_increment=16M
  good "$device: threads" "$device" "${small[@]}" --numjobs=2 --thread --size=16M --offset_increment=16M
  good "$device: sleeping" "$device" "${small[@]}" --completion=interrupt
  good "$device: long commands" "$device" "${small[@]}" --bs=8m --size=32M --iodepth=2
done
good 'pairs of another process' "vfio-user\\:$work/kv-socket" "${small[@]}"
good 'digests' "$tcp" "${small[@]}" --hdgst=1 --ddgst=1 --device_options=keep-alive=5
says 'err= 0'

# Placement.
fdp='mem\:block\:64M,block=4096,fdp'
good 'placements in turn' "$fdp" "${small[@]}" --fdp=1 --fdp_pli=0,2,3
good 'placements at random, all of them' "$fdp" "${small[@]}" --fdp=1 --fdp_pli_select=random
"$unvme" device create 0000:04:00.0 --size 64M --block 4096 --fdp >/dev/null
good 'only those asked for' 0000.04.00.0 --rw=write --bs=4k --size=4M --fdp=1 --fdp_pli=1,3
bad 'a placement there is not' 'indices from 0 to [0-9]+' "$fdp" "${small[@]}" --fdp=1 --fdp_pli=200
bad 'a device without' 'has no placement handles' "$blocks" "${small[@]}" --fdp=1

# Faults in the middle: I/O errors at their offsets, and fio goes on where it is told to.
"$unvme" fault add 0000:02:00.0 --opcode read --lba 4096-4103 --status 0x281 >/dev/null
bad 'a fault ends the job' 'read offset=2097152.*' 0000.02.00.0 --rw=read --bs=4k --size=8M
says 'Unrecovered Read Error \(0x281\)'
good 'a fault is counted' 0000.02.00.0 --rw=read --bs=4k --size=8M --continue_on_error=io --iodepth=8
python3 - <<'P' || fail 'one error is expected'
import json
job = json.loads("{" + open("out").read().split("\n{", 1)[1].rsplit("\n}", 1)[0] + "}")["jobs"][0]
assert job["total_err"] == 1 and job["first_error"] == 5, (job["total_err"], job["first_error"])
assert job["read"]["total_ios"] in (2047, 2048), job["read"]["total_ios"]
P
"$unvme" fault clear 0000:02:00.0 >/dev/null
(sleep 2; "$unvme" device unplug 0000:02:00.0 >/dev/null) &
bad 'an unplugged device ends the job' 'unvme:' 0000.02.00.0 --rw=randread --bs=4k --iodepth=8 --size=8M \
  --time_based --runtime=60 --continue_on_error=io
wait $!
"$unvme" device plug 0000:02:00.0 >/dev/null

# The job files of the uNVMe SDK, as they stand.
cp "$root"/share/unvme/fio_plugin/* .
ln -s "$engine" unvme2_fio_plugin
fio Sample_Write.fio >out 2>&1 || fail 'Sample_Write.fio'
says 'unvme2_fio_plugin is built with fio version=3\.'
says 'job 1 will generate IO to the devices below\(at core [0-9]+\)'
says ' 0000\.02\.00\.0: handle=0x[0-9a-f]+, core_mask=0x3, cq_mask=0xc, sector_size=512'
sed -e 's/10G/8M/' Sample_Write_Multi.fio >multi.fio
fio multi.fio >out 2>&1 || fail 'Sample_Write_Multi.fio'
says 'job 3 will generate IO to the devices below'
bad 'a device that is not configured' 'is not a dev_id of' 0000.03.00.0 --json_path=unvme2_config.json "${small[@]}"
bad 'no such configuration' 'none\.json' 0000.02.00.0 --json_path=none.json "${small[@]}"

# Those that are handed out, by the engine's name.
mkdir by-name
ln -s "$engine" by-name/unvme
for file in "$root"/share/unvme/fio/*.fio; do
  name=$(basename "$file")
  device=0000.02.00.0
  case $name in
  pairs.fio) device=0000.03.00.0 ;;
  fdp.fio) device=0000.04.00.0 ;;
  esac
  sed -E -e 's/^runtime=.*/runtime=100ms/' -e 's/^steadystate_ramp_time=.*/steadystate_ramp_time=1/' \
    -e 's/^steadystate_duration=.*/steadystate_duration=1/' "$file" >short.fio
  if [ "$name" = steady-state.fio ]; then sed -i 's/^runtime=.*/runtime=6s/' short.fio; fi
  LD_LIBRARY_PATH=$work/by-name DEVICE=$device fio --output-format=json --output="$name.json" short.fio >out 2>&1 ||
    fail "$name"
  passed=$((passed + 1))
done
fio --ioengine="external:$engine" --name=t --filename="$blocks" "${small[@]}" >out 2>&1 || fail 'external:'

# fio's own test jobs that end with libaio on a file, with the engine in libaio's place, smaller and shorter.
own() {
  printf '[global]\nioengine=%s\nfilename=0000.06.00.0\n' "$engine"
  sed -E -e '/^(ioengine|filename|log_offset|write_iolog)=/d' -e 's/=1G$/=16M/' -e 's/=4G$/=64M/' -e 's/=4g$/=16m/' \
    -e 's/=100m$/=16m/' -e 's/=10g$/=4m/' -e 's/^iodepth=16$/iodepth=8/' -e 's/^runtime=.*/runtime=1/' \
    -e 's/^loops=1000000$/loops=100/' "$1"
}

jobs=${FIO_SRC:-$(dirname "$engine")/fio-$(fio --version | sed 's/^fio-\([0-9]*\.[0-9]*\).*/\1/')}/t/jobs
[ -f "$jobs/t0026.fio" ] || fail "$jobs is not the folder of fio's own test jobs; give FIO_SRC="
"$unvme" device create 0000:06:00.0 --size 128M >/dev/null
for name in t0002-13af05ae-pre t0002-13af05ae-post t0003-0ae2c6e1-pre t0004-8a99fdf6 \
  t0005-f7078f7b t0006-82af2a7c t0007-37cf9e3c t0008-ae2fafc8 t0010-b7aae4ba t0013 t0015-e78980ff t0017 t0018 \
  t0025 t0026; do
  own "$jobs/$name.fio" >own.fio
  timeout 120 fio own.fio >out 2>&1 || fail "$name of fio's own test jobs"
  passed=$((passed + 1))
done
# What this one reads was written in other sizes, and by two jobs: that has to be found, and is no crash.
own "$jobs/t0003-0ae2c6e1-post.fio" >own.fio
status=0
timeout 120 fio own.fio >out 2>&1 || status=$?
[ "$status" -gt 0 ] && [ "$status" -lt 124 ] || fail "t0003-0ae2c6e1-post of fio's own test jobs: status $status"
says 'verify: bad magic header'

# What cannot be done.
if fio --ioengine="$engine" --name=t "${small[@]}" >out 2>&1; then fail 'a job without a device'; fi
says 'filename= is missing'
bad 'a slot there is not' '0000:0f:00\.0' 0000.0f.00.0 "${small[@]}"
bad 'a server there is not' 'vfio-user:/none' 'vfio-user\:/none' "${small[@]}"
bad 'a name there is not' 'what:ever' 'what\:ever' "${small[@]}"
bad 'a block size the device has not' '1000 bytes: its blocks have 512 bytes' "$blocks" "${small[@]}" --bs=1000
bad 'one of many' '4352 bytes: its blocks have 512 bytes' "$blocks" "${small[@]}" --bssplit=4k/50:4352/50 --bs_unaligned=0
bad 'zones' 'zonemode=zbd' "$blocks" "${small[@]}" --zonemode=zbd
bad 'a namespace there is not' 'namespace 7' "$blocks,nsid=7" "${small[@]}"
bad 'a namespace that is no number' 'nsid=' "$blocks,nsid=x" "${small[@]}"
bad 'keys that are too few' 'give a larger ks=' 'mem\:kv\:4T' "${small[@]}" --bs=512 --ks=4 --size=100%
echo "fio: $passed runs: ok"
