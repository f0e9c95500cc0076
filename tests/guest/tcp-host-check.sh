#!/bin/bash
# tcp-host-check.sh - in the guest: our NVMe/TCP initiator against the kernel's own target, nvmet.
#
#   tcp-host-check.sh UNVME TOOLS
#
# TOOLS is the folder that `guest.sh tools` prints. Reported as check.sh says. Each check is called by its
# name; paths have no blanks in them.
# shellcheck disable=SC2317,SC2086,SC2154
set -u -o pipefail
here=$(dirname "$0")
unvme=$1 tools=$2
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$here/check.sh"
# shellcheck source-path=SCRIPTDIR source=tcp.sh
. "$here/tcp.sh"
NVMET=/sys/kernel/config/nvmet
LOCKED=$NQN:locked
device=tcp:$ADDRESS:$PORT/$NQN

# --- the kernel's target
# ---------------------------------------------------------------------------------------- port NUMBER TRSVCID
# [tls]
port() {
  local at=$NVMET/ports/$1
  mkdir $at
  echo tcp > $at/addr_trtype
  echo ipv4 > $at/addr_adrfam
  echo $ADDRESS > $at/addr_traddr
  echo $2 > $at/addr_trsvcid
  if [ "${3:-}" = tls ]; then
    echo required > $at/addr_treq
    echo tls1.3 > $at/addr_tsas
  fi
}
# subsystem NQN PORT ANY_HOST
subsystem() {
  mkdir $NVMET/subsystems/$1
  echo $3 > $NVMET/subsystems/$1/attr_allow_any_host
  ln -s $NVMET/subsystems/$1 $NVMET/ports/$2/subsystems/$1
}
# namespace NQN NSID DISK
namespace() {
  local at=$NVMET/subsystems/$1/namespaces/$2
  mkdir $at
  echo /dev/$3 > $at/device_path
  echo 1 > $at/enable
}

target() {
  modprobe -a nvmet-tcp nvme-tcp
  modprobe brd rd_nr=4 rd_size=65536
  port 1 $PORT
  subsystem $NQN 1 1
  namespace $NQN 1 ram0
  subsystem $LOCKED 1 0
  namespace $LOCKED 1 ram1
  mkdir $NVMET/hosts/$HOSTNQN
  ln -s $NVMET/hosts/$HOSTNQN $NVMET/subsystems/$LOCKED/allowed_hosts/$HOSTNQN
}

# --- the checks
# ---------------------------------------------------------------------------------------------------
discovered() {
  $unvme discover $ADDRESS:$PORT | tee /tmp/discovered
  grep $NQN /tmp/discovered
  $unvme discover $ADDRESS:$PORT --output json | python3 -m json.tool
}

# What nvme-cli reads by the kernel we read ourselves, but for the controller's number.
identified() {
  connect_block
  $unvme id-ctrl $device -b > /tmp/ours
  nvme id-ctrl /dev/$controller -b > /tmp/theirs
  cmp <(head -c 78 /tmp/ours) <(head -c 78 /tmp/theirs)
  cmp -i 80 /tmp/ours /tmp/theirs
  cmp <($unvme id-ns $device -n 1 -b) <(nvme id-ns $block -n 1 -b)
  $unvme smart-log $device
  $unvme list-ns $device
  # What one side writes the other one reads.
  head -c 1M /dev/urandom > /tmp/data
  $unvme write $device -s 2048 -z 1M -d /tmp/data --force
  dd if=$block bs=1M skip=1 count=1 iflag=direct | cmp - /tmp/data
  disconnect
}

perf() { $unvme perf --force -r "$1" -w ${2:-randrw} -q ${3:-32} -o ${4:-4096} -t ${5:-2} --range 16M --verify --prefill; }

input_and_output() {
  perf $device$1 randrw 1 4096
  perf $device$1 randrw 32 4096
  perf $device$1 randrw 16 65536
  perf $device$1 randwrite 8 131072
  $unvme perf --force -r $device$1 -w randread -q 16 -o 4096 -t 2 --range 16M --cores 0-1
}

known_target() {
  (umask 077; printf '{ "targets": [ { "nqn": "%s", %s } ] }\n' "$1" "$2" > $UNVME_HOME/fabrics.json)
}

authenticated() {
  local host=$NVMET/hosts/$HOSTNQN hash group
  echo $HOST_KEY > $host/dhchap_key
  for hash in sha256 sha384 sha512; do
    for group in null ffdhe2048 ffdhe4096; do
      echo "hmac($hash)" > $host/dhchap_hash
      echo $group > $host/dhchap_dhgroup
      known_target $LOCKED "\"dhchap_key\": \"$HOST_KEY\""
      $unvme id-ctrl tcp:$ADDRESS:$PORT/$LOCKED
    done
  done
  echo $CONTROLLER_KEY > $host/dhchap_ctrl_key
  known_target $LOCKED "\"dhchap_key\": \"$HOST_KEY\", \"dhchap_controller_key\": \"$CONTROLLER_KEY\""
  perf tcp:$ADDRESS:$PORT/$LOCKED randrw 16
  known_target $LOCKED "\"dhchap_key\": \"$HOST_KEY\", \"dhchap_controller_key\": \"$HOST_KEY\""
  refused '' $unvme id-ctrl tcp:$ADDRESS:$PORT/$LOCKED
  known_target $LOCKED "\"dhchap_key\": \"$CONTROLLER_KEY\""
  refused '' $unvme id-ctrl tcp:$ADDRESS:$PORT/$LOCKED
  rm $UNVME_HOME/fabrics.json
  refused '' $unvme id-ctrl tcp:$ADDRESS:$PORT/$LOCKED
}

encrypted() {
  tls_ready $NQN:tls 1
  port 2 4421 tls
  subsystem $NQN:tls 2 1
  namespace $NQN:tls 1 ram2
  known_target $NQN:tls "\"tls_key\": \"$TLS_KEY\""
  perf tcp:$ADDRESS:4421/$NQN:tls randrw 16
  rm $UNVME_HOME/fabrics.json
  refused '' timeout 20 $unvme id-ctrl tcp:$ADDRESS:4421/$NQN:tls
}

# The port goes and comes back while reads are under way: they are sent again.
reconnected() {
  local io
  $unvme perf -r $device,reconnect=30 -w randread -q 16 -o 4096 -t 8 --range 16M > /tmp/reconnected 2>&1 &
  io=$!
  sleep 2
  rm $NVMET/ports/1/subsystems/$NQN
  sleep 2
  ln -s $NVMET/subsystems/$NQN $NVMET/ports/1/subsystems/$NQN
  wait $io || { cat /tmp/reconnected; return 1; }
  cat /tmp/reconnected
}

# A namespace that appears is there for the next who looks.
namespaces_appear() {
  [ "$($unvme list-ns $device | grep -c 0x)" = 1 ]
  namespace $NQN 2 ram3
  [ "$($unvme list-ns $device | grep -c 0x)" = 2 ]
  $unvme perf --force -r $device -n 2 -w randrw -q 8 -o 4096 -t 1 --range 8M --verify --prefill
  echo 0 > $NVMET/subsystems/$NQN/namespaces/2/enable
  refused '' $unvme read $device -n 2 -s 0 -z 4096
}

refusals() {
  refused 'nqn.2024-01.io.example:missing' $unvme id-ctrl tcp:$ADDRESS:$PORT/nqn.2024-01.io.example:missing
  refused '' $unvme id-ctrl tcp:$ADDRESS:4999/$NQN
}

name_host
target
check 'discover' discovered
check 'identify is what the kernel reads' identified
check 'verified I/O' input_and_output ''
check 'verified I/O with a header digest' input_and_output ,hdgst
check 'verified I/O with header and data digests' input_and_output ,hdgst,ddgst
check 'authentication' authenticated
check 'TLS' encrypted
check 'reconnected when the port is back' reconnected
check 'namespaces appear' namespaces_appear
check 'refusals say why' refusals
exit "$failed"
