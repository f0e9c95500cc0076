#!/bin/bash
# tcp-check.sh - in the guest: the kernel's NVMe/TCP initiator and nvme-cli against a target of ours.
#
#   tcp-check.sh UNVME TOOLS short            what must always work, in half a minute
#   tcp-check.sh UNVME TOOLS whole            everything but the long run
#   tcp-check.sh UNVME TOOLS long SECONDS     a file system under fio for so long, with digests
#
# Target and initiator are in the same guest; TOOLS is the folder that `guest.sh tools` prints. Reported as
# check.sh says. Each check is called by its name; paths have no blanks in them.
# shellcheck disable=SC2317,SC2086,SC2154
set -u -o pipefail
here=$(dirname "$0")
unvme=$1 tools=$2 kind=$3 seconds=${4:-600}
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$here/check.sh"
# shellcheck source-path=SCRIPTDIR source=tcp.sh
. "$here/tcp.sh"
SLOT=0000:42:00.0

discover() {
  serve ssd $PORT --nqn $NQN --referral 192.0.2.7:8009 $SLOT
  nvme discover -t tcp -a $ADDRESS -s $PORT -q $HOSTNQN -I $HOSTID -o json > /tmp/discovered
  cat /tmp/discovered
  python3 - $NQN $PORT << 'PYTHON'
import json, sys
records = json.load(open("/tmp/discovered"))["records"]
ours = [r for r in records if r["subnqn"] == sys.argv[1]]
assert [(r["trtype"], r["adrfam"], r["traddr"], r["trsvcid"], r["subtype"]) for r in ours] == \
    [("tcp", "ipv4", "127.0.0.1", sys.argv[2], "nvme subsystem")], ours
assert [r["traddr"] for r in records if r["subtype"] == "discovery subsystem referral"] == ["192.0.2.7"], records
PYTHON
}

# input_and_output OPTION...: connected with these options, everything that is written comes back.
input_and_output() {
  connect_block "$@"
  verified $block --rw=write --bs=128k --size=16M --iodepth=4
  verified $block --rw=randwrite --bsrange=4k-256k --blockalign=4k --size=32M --io_size=16M --iodepth=32
  verified $block --rw=randrw --bs=4k --size=16M --io_size=8M --iodepth=1
  blkdiscard -f -o 1M -l 1M $block
  blkdiscard -f -z -o 2M -l 1M $block
  cmp -n 1048576 -i 2097152:0 $block /dev/zero
  sync $block
  disconnect
}

queues() {
  local count
  connect_block --nr-io-queues=2 --queue-size=32
  count=$(cat /sys/class/nvme/$controller/queue_count)
  [ "$count" = 3 ]
  [ "$(cat /sys/class/nvme/$controller/sqsize)" = 31 ]
  verified $block --rw=randrw --bs=16k --size=8M --iodepth=32 --numjobs=2 --offset_increment=8M
  disconnect
}

# Several subsystems at once, found by the discovery controller and by its referral.
connect_all() {
  serve first 4431 --nqn $NQN:first --referral $ADDRESS:4432 mem:block:64M
  serve second 4432 --nqn $NQN:second mem:block:64M
  nvme connect-all -t tcp -a $ADDRESS -s 4431 -q $HOSTNQN -I $HOSTID
  until_so 10 eval '[ "$(cat /sys/class/nvme/nvme*/subsysnqn | grep -c "^$NQN:")" = 2 ]'
  nvme list-subsys
  nvme disconnect-all
  stop first
  stop second
}

# What a kernel does when its connection is closed and the target is still there.
disconnect_under_load() {
  local io
  connect_block
  timeout 60 fio --name=load --filename=$block --direct=1 --rw=randrw --bs=4k --size=64M --iodepth=64 --ioengine=libaio --time_based \
    --runtime=30 --output-format=terse > /tmp/load.out 2>&1 &
  io=$!
  sleep 2
  disconnect
  # Its file is gone.
  if wait $io; then return 1; fi
  connect_block
  verified $block --rw=randwrite --bs=4k --size=4M --iodepth=16
  disconnect
}

# paced: writes 64 MiB once, in random order and slowly enough that the server is killed meanwhile, then
# compares all of it.
paced() {
  verified $block --rw=randwrite --bs=16k --size=64M --iodepth=16 --rate_iops=${1:-400}
}

# killed_and_restarted TIMES OPTION...: a killed target comes back with its data; what the kernel has in
# flight it sends again.
killed_and_restarted() {
  local io times=$1; shift
  connect_block "$@"
  paced $((800 / times)) > /tmp/paced.out 2>&1 &
  io=$!
  for _ in $(seq $times); do
    sleep 2
    stop ssd -KILL
    sleep 1
    serve ssd $PORT --nqn $NQN $SLOT
    until_so 20 grep -q live /sys/class/nvme/$controller/state
  done
  wait $io || { cat /tmp/paced.out; return 1; }
  disconnect
}

# SIGTERM: what was begun is finished, and the next server goes on.
drained() {
  local io pid
  connect_block
  paced > /tmp/paced.out 2>&1 &
  io=$!
  sleep 2
  pid=$(cat /tmp/ssd.pid)
  stop ssd
  wait "$pid" 2> /dev/null || true
  serve ssd $PORT --nqn $NQN $SLOT
  wait $io || { cat /tmp/paced.out; return 1; }
  disconnect
}

reset_under_load() {
  local io
  connect_block
  paced 600 > /tmp/paced.out 2>&1 &
  io=$!
  for _ in 1 2 3; do sleep 1; nvme reset /dev/$controller; done
  wait $io || { cat /tmp/paced.out; return 1; }
  nvme show-regs /dev/$controller
  disconnect
}

# Which hosts may enter.
allow_list() {
  serve listed 4433 --nqn $NQN:listed --allow-host $OTHER_HOST mem:block:64M
  AT=4433 TO=$NQN:listed refused '' nvme connect -t tcp -a $ADDRESS -s 4433 -n $NQN:listed -q $HOSTNQN -I $HOSTID
  dmesg | tail -5 | grep -i 'not allowed'
  nvme connect -t tcp -a $ADDRESS -s 4433 -n $NQN:listed -q $OTHER_HOST -I 99999999-2222-3333-4444-555555555555
  disconnect $NQN:listed
  stop listed
}

# access_file KEY...: of "name": "value" pairs, for this host.
access_file() {
  (umask 077; printf '{ "hosts": [ { "nqn": "%s", %s } ] }\n' $HOSTNQN "$1" > /tmp/access.json)
}

authenticated() {
  access_file "\"dhchap_key\": \"$HOST_KEY\", \"dhchap_controller_key\": \"$CONTROLLER_KEY\""
  serve locked 4434 --nqn $NQN:locked --access /tmp/access.json mem:block:64M
  AT=4434 TO=$NQN:locked connect_block --dhchap-secret=$HOST_KEY
  verified $block --rw=randrw --bs=4k --size=4M --iodepth=16
  disconnect $NQN:locked
  AT=4434 TO=$NQN:locked connect_block --dhchap-secret=$HOST_KEY --dhchap-ctrl-secret=$CONTROLLER_KEY
  verified $block --rw=randrw --bs=4k --size=4M --iodepth=16
  # Another key from now on: the kernel authenticates again.
  nvme reset /dev/$controller
  verified $block --rw=randrw --bs=4k --size=4M --iodepth=16
  disconnect $NQN:locked
  refused '' nvme connect -t tcp -a $ADDRESS -s 4434 -n $NQN:locked -q $HOSTNQN -I $HOSTID
  refused '' nvme connect -t tcp -a $ADDRESS -s 4434 -n $NQN:locked -q $HOSTNQN -I $HOSTID --dhchap-secret=$CONTROLLER_KEY
  refused '' nvme connect -t tcp -a $ADDRESS -s 4434 -n $NQN:locked -q $HOSTNQN -I $HOSTID --dhchap-secret=$HOST_KEY --dhchap-ctrl-secret=$HOST_KEY
  stop locked
}

# encrypted VERSION: TLS 1.3 with a key whose identity has that version.
encrypted() {
  access_file "\"tls_key\": \"$TLS_KEY\""
  serve encrypted 4435 --nqn $NQN:tls --access /tmp/access.json mem:block:64M
  tls_ready $NQN:tls "$1"
  AT=4435 TO=$NQN:tls connect_block --tls
  verified $block --rw=randrw --bsrange=4k-128k --blockalign=4k --size=8M --iodepth=16
  grep -q . /sys/class/nvme/$controller/tls_key
  disconnect $NQN:tls
  # Without TLS it gets nowhere.
  refused '' timeout 20 nvme connect -t tcp -a $ADDRESS -s 4435 -n $NQN:tls -q $HOSTNQN -I $HOSTID
  kill "$(cat /tmp/tlshd.pid)"
  keyctl clear %:.nvme
  stop encrypted
}

# One device at two ports: the kernel makes one block device of both and goes by the better one, until that is
# gone.
two_ports() {
  local io
  $unvme serve --nqn $NQN:two --tcp $ADDRESS:4436 --tcp $ADDRESS:4437 --ana 4437=non-optimized mem:block:128M > /tmp/two.out 2>> /tmp/two.log &
  echo $! > /tmp/two.pid
  until_so 10 listens 4437
  AT=4436 TO=$NQN:two connect_block
  AT=4437 TO=$NQN:two connect
  until_so 5 eval 'nvme list-subsys | tee /dev/stderr | grep -q 4437'
  until_so 5 eval 'cat /sys/class/nvme/nvme*/nvme*c*n1/ana_state | sort | tr "\n" " " | grep -q "^non-optimized optimized "'
  nvme ana-log /dev/$controller
  verified $block --rw=randwrite --bs=16k --size=32M --iodepth=16 --rate_iops=400 > /tmp/two.fio 2>&1 &
  io=$!
  sleep 1
  # One of the two paths goes; the other one carries on.
  nvme disconnect -d "$(grep -l 'trsvcid=4436' /sys/class/nvme/nvme*/address | cut -d / -f 5)"
  wait $io || { cat /tmp/two.fio; return 1; }
  disconnect $NQN:two
  stop two
}

pairs() {
  local all
  serve pairs 4438 --nqn $NQN:pairs mem:kv:256M
  AT=4438 TO=$NQN:pairs connect
  until_so 5 test -c /dev/ng${controller#nvme}n1
  all=$("$here/kv-check.sh" $controller) || { echo "$all"; return 1; }
  echo "$all"
  disconnect $NQN:pairs
  stop pairs
}

# nvme-cli on everything there is, by the script for the PCI device, which knows /dev/nvme0.
admin_connected() {
  serve admin 4439 --nqn $NQN:admin mem:block:512M
  AT=4439 TO=$NQN:admin connect_block
  [ $controller = nvme0 ]
}
admin_ends() {
  disconnect $NQN:admin
  stop admin
}

file_system() {
  modprobe ext4
  connect_block
  mkfs.ext4 -q -F $block
  mkdir -p /tmp/mount
  mount $block /tmp/mount
  verified /tmp/mount/data --rw=randrw --bsrange=4k-64k --blockalign=4k --size=64M --io_size=32M --iodepth=16
  head -c 20M /dev/urandom > /tmp/file
  cp /tmp/file /tmp/mount/file
  rm /tmp/mount/data
  fstrim -v /tmp/mount
  umount /tmp/mount
  disconnect
  connect_block
  fsck.ext4 -f -n $block
  mount -o ro $block /tmp/mount
  cmp /tmp/file /tmp/mount/file
  umount /tmp/mount
  disconnect
}

long_run() {
  modprobe ext4
  connect_block -g -G
  mkfs.ext4 -q -F $block
  mkdir -p /tmp/mount
  mount $block /tmp/mount
  timeout $((seconds + 300)) fio --name=long --directory=/tmp/mount --direct=1 --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
    --ioengine=libaio --rw=randrw --bsrange=4k-128k --blockalign=4k --size=64M --numjobs=2 --iodepth=16 --time_based \
    --runtime=$seconds --output-format=terse --terse-version=3
  umount /tmp/mount
  fsck.ext4 -f -n $block
  disconnect
}

# What the kernel says when nothing is wrong is not an error; resets and reconnects were asked for.
kernel_log() { ! dmesg | grep -iE 'I/O error|digest error|nvme.*(timeout|data is lost|protocol error)'; }

modprobe -a nvme-tcp nvme-fabrics
name_host
$unvme device create $SLOT --size 256M > /dev/null || exit 1
check 'discover: our target, and a referral' discover
case $kind in
  short)
    checked 'written and read back, with digests' input_and_output -g -G
    checked 'authentication' authenticated
    checked 'target killed and restarted' killed_and_restarted 1
    checked 'a key-value namespace' pairs ;;
  whole)
    checked 'written and read back' input_and_output
    checked 'with a header digest' input_and_output -g
    checked 'with header and data digests' input_and_output -g -G
    checked 'without flow control' input_and_output --disable-sqflow
    checked 'queues and their depth' queues
    checked 'connect-all, with a referral' connect_all
    checked 'hosts that may enter' allow_list
    checked 'authentication, one way and both' authenticated
    checked 'TLS, identity version 1' encrypted 1
    checked 'TLS, identity version 0' encrypted 0
    checked 'disconnected under load' disconnect_under_load
    checked 'resets under load' reset_under_load
    checked 'target killed and restarted' killed_and_restarted 2
    checked 'the same with digests' killed_and_restarted 2 -g -G
    checked 'target drained and restarted' drained
    checked 'one device at two ports' two_ports
    checked 'a key-value namespace' pairs
    checked 'a file system' file_system
    checked 'connected for nvme-cli' admin_connected
    PATH=${PATH#"$tools:"} "$here/admin-check.sh" fabrics || failed=1
    checked 'disconnected after nvme-cli' admin_ends ;;
  long) checked "a file system under fio for $seconds s" long_run ;;
esac
check 'the server stops' stop ssd
check "server's log" no_warnings ssd
case $kind in short | long) check "kernel's log" kernel_log ;; esac
exit "$failed"
