#!/bin/bash
# tcp.sh - in the guest of tcp.py: the kernel's host (nvme-tcp) and its target (nvmet-tcp) speak through
# tcp_proxy.py.
#
#   tcp.sh TOOLS OUTDIR     TOOLS is the folder that `guest.sh tools` prints
#
# Each session has a proxy of its own, whose record is OUTDIR/tcp-NAME.hex.
set -eux -o pipefail
tools=$1 out=$2 here=$(dirname "$0")
PATH=$tools:$PATH
HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555
HOSTID=11111111-2222-3333-4444-555555555555
SUBNQN=nqn.2024-01.io.example:vectors
OTHER=nqn.2024-01.io.example:other
LOCKED=nqn.2024-01.io.example:locked
NVMET=/sys/kernel/config/nvmet
TARGET=4420
port=4500

# --- the target
# -------------------------------------------------------------------------------------------------
subsystem() {
  local at=$NVMET/subsystems/$1
  mkdir "$at"
  echo "$2" > "$at/attr_allow_any_host"
  echo VECTORS > "$at/attr_serial"
  ln -s "$at" "$NVMET/ports/1/subsystems/$1"
}

namespace() {
  local at=$NVMET/subsystems/$1/namespaces/$2
  mkdir "$at"
  echo "/dev/$3" > "$at/device_path"
  echo "11111111-0000-0000-0000-00000000000$2" > "$at/device_uuid"
  echo 1 > "$at/enable"
}

target() {
  modprobe -a nvmet-tcp nvme-tcp
  modprobe brd rd_nr=3 rd_size=65536
  mkdir "$NVMET/ports/1"
  echo tcp > "$NVMET/ports/1/addr_trtype"
  echo ipv4 > "$NVMET/ports/1/addr_adrfam"
  echo 127.0.0.1 > "$NVMET/ports/1/addr_traddr"
  echo $TARGET > "$NVMET/ports/1/addr_trsvcid"
  # Data of a page goes in the capsule, more is asked for by R2T.
  echo 4096 > "$NVMET/ports/1/param_inline_data_size"
  mkdir "$NVMET/hosts/$HOSTNQN"
  subsystem $SUBNQN 1
  subsystem $OTHER 1
  subsystem $LOCKED 0
  namespace $SUBNQN 1 ram0
  namespace $OTHER 1 ram1
  mkdir "$NVMET/ports/1/referrals/elsewhere"
  cd "$NVMET/ports/1/referrals/elsewhere"
  echo tcp > addr_trtype; echo ipv4 > addr_adrfam; echo 192.0.2.7 > addr_traddr; echo 8009 > addr_trsvcid; echo 2 > addr_portid
  echo 1 > enable
  cd - > /dev/null
}

# --- sessions
# ----------------------------------------------------------------------------------------------------- record
# NAME: starts a proxy at $port.
record() {
  port=$((port + 1))
  python3 "$here/tcp_proxy.py" $port $TARGET "$out/tcp-$1.hex" &
  proxy=$!
  for _ in $(seq 100); do (: > /dev/tcp/127.0.0.1/$port) 2> /dev/null && break; sleep 0.2; done
}
recorded() { sleep 0.5; kill $proxy; wait $proxy || true; }

connect() {
  nvme connect -t tcp -a 127.0.0.1 -s $port -q $HOSTNQN -I $HOSTID -i 1 -Q 16 -l 0 "$@"
}
connected() {
  connect -n $SUBNQN "$@"
  for _ in $(seq 100); do [ -b /dev/nvme0n1 ] && break; sleep 0.1; done
  [ -b /dev/nvme0n1 ]
  sleep 1
}

# A proxy is looked at once by record, which is connection 0 and empty: a session's connections start at 1.
discovery() {
  record discovery
  nvme discover -t tcp -a 127.0.0.1 -s $port -q $HOSTNQN -I $HOSTID -o json | tee "$out/tcp-discovery.json"
  recorded
}

session() {
  record session
  connected --keep-alive-tmo=2
  dd if=/tmp/pattern of=/dev/nvme0n1 bs=4096 count=1 oflag=direct
  dd if=/tmp/pattern of=/dev/nvme0n1 bs=512 seek=63 count=1 oflag=direct
  dd if=/tmp/pattern of=/dev/nvme0n1 bs=16384 seek=1 count=1 oflag=direct
  dd if=/dev/nvme0n1 of=/tmp/read bs=4096 count=1 iflag=direct; cmp -n 4096 /tmp/read /tmp/pattern
  dd if=/dev/nvme0n1 of=/tmp/read bs=16384 skip=1 count=1 iflag=direct; cmp /tmp/read /tmp/pattern
  nvme flush /dev/nvme0n1 -n 1
  nvme dsm /dev/nvme0n1 -n 1 -d -s 64 -b 8
  nvme write-zeroes /dev/nvme0n1 -n 1 -s 96 -c 7
  nvme smart-log /dev/nvme0 > "$out/tcp-smart-log.txt"
  nvme get-feature /dev/nvme0 -f 0x0f
  nvme show-regs /dev/nvme0 > "$out/tcp-properties.txt"
  nvme id-ctrl /dev/nvme0 -o json > "$out/tcp-id-ctrl.json"
  # A read beyond the end, and an opcode that does not exist.
  nvme read /dev/nvme0n1 -s 0x100000 -c 7 -z 4096 -d /tmp/beyond || true
  nvme io-passthru /dev/nvme0n1 -n 1 -O 0x7f || true
  namespace $SUBNQN 2 ram2
  sleep 2
  nvme disconnect -n $SUBNQN
  recorded
  rmdir_namespace $SUBNQN 2
}
rmdir_namespace() { echo 0 > "$NVMET/subsystems/$1/namespaces/$2/enable"; rmdir "$NVMET/subsystems/$1/namespaces/$2"; }

digests() {
  record digests
  connected -g -G
  dd if=/tmp/pattern of=/dev/nvme0n1 bs=4096 count=1 oflag=direct
  dd if=/tmp/pattern of=/dev/nvme0n1 bs=16384 seek=1 count=1 oflag=direct
  dd if=/dev/nvme0n1 of=/tmp/read bs=4096 count=1 iflag=direct; cmp -n 4096 /tmp/read /tmp/pattern
  nvme disconnect -n $SUBNQN
  recorded
}

# Without flow control of the submission queue a read that succeeds has no capsule: SUCCESS in the data's
# header.
no_flow_control() {
  record no-flow-control
  connected --disable-sqflow
  dd if=/tmp/pattern of=/dev/nvme0n1 bs=4096 count=1 oflag=direct
  dd if=/tmp/pattern of=/dev/nvme0n1 bs=16384 seek=1 count=1 oflag=direct
  dd if=/dev/nvme0n1 of=/tmp/read bs=4096 count=1 iflag=direct; cmp -n 4096 /tmp/read /tmp/pattern
  nvme disconnect -n $SUBNQN
  recorded
}

refused() {
  record refused
  connect -n nqn.2024-01.io.example:missing || true
  echo 0 > "$NVMET/subsystems/$OTHER/attr_allow_any_host"
  connect -n $OTHER || true
  echo 1 > "$NVMET/subsystems/$OTHER/attr_allow_any_host"
  recorded
}

# auth NAME HASH GROUP HOSTKEY CTRLKEY: CTRLKEY - is one way only.
auth() {
  local host=$NVMET/hosts/$HOSTNQN options=(--dhchap-secret="$4")
  echo "$2" > "$host/dhchap_hash"
  echo "$3" > "$host/dhchap_dhgroup"
  echo "$4" > "$host/dhchap_key"
  if [ "$5" = - ]; then printf '\n' > "$host/dhchap_ctrl_key" || true; else
    echo "$5" > "$host/dhchap_ctrl_key"
    options+=(--dhchap-ctrl-secret="$5")
  fi
  record "auth-$1"
  connect -n $LOCKED "${options[@]}" ${6:+--dhchap-secret="$6"} && nvme disconnect -n $LOCKED || true
  recorded
  echo "$1 $2 $3 $HOSTNQN $LOCKED $4 $5 ${6:--}" >> "$out/tcp-auth-keys.txt"
}

key() { nvme gen-dhchap-key -m "$1" -n $HOSTNQN -s "$2"; }
hexes() { for ((i = $1; i < $1 + $2; i++)); do printf '%02x' "$i"; done; }

auths() {
  ln -s "$NVMET/hosts/$HOSTNQN" "$NVMET/subsystems/$LOCKED/allowed_hosts/$HOSTNQN"
  echo '# name, hash, group, host NQN, subsystem NQN, host key, controller key, wrong key that the host had' > "$out/tcp-auth-keys.txt"
  local h32 c32 h48 c48 h64 c64
  h32=$(hexes 0 32) c32=$(hexes 128 32) h48=$(hexes 0 48) c48=$(hexes 128 48) h64=$(hexes 0 64) c64=$(hexes 128 64)
  auth null-sha256 'hmac(sha256)' null "$(key 0 "$h32")" -
  auth null-sha256-both 'hmac(sha256)' null "$(key 0 "$h32")" "$(key 0 "$c32")"
  auth null-sha384-both 'hmac(sha384)' null "$(key 2 "$h48")" "$(key 2 "$c48")"
  auth null-sha512-both 'hmac(sha512)' null "$(key 3 "$h64")" "$(key 3 "$c64")"
  auth ffdhe2048-sha256-both 'hmac(sha256)' ffdhe2048 "$(key 1 "$h32")" "$(key 1 "$c32")"
  auth ffdhe3072-sha384-both 'hmac(sha384)' ffdhe3072 "$(key 2 "$h48")" "$(key 2 "$c48")"
  auth ffdhe8192-sha512-both 'hmac(sha512)' ffdhe8192 "$(key 3 "$h64")" "$(key 3 "$c64")"
  auth wrong-key 'hmac(sha256)' null "$(key 0 "$h32")" - "$(key 0 "$c32")"
}

# The keys of TLS: what nvme-cli makes of them.
tls_keys() {
  { nvme version; echo '# configured key; then identity and derived key, in the same format, as they go into the keyring'; } > "$out/tcp-tls-keys.txt"
  modprobe nvme-keyring
  local hmac identity configured
  for hmac in 1 2; do
    configured=$(nvme gen-tls-key -m $hmac -s "$(hexes 1 $((hmac * 16 + 16)))")
    for identity in 0 1; do
      echo "$configured" >> "$out/tcp-tls-keys.txt"
      nvme check-tls-key -d "$configured" -I $identity -n $HOSTNQN -c $SUBNQN -i -f /tmp/tls-keys
      cat /tmp/tls-keys >> "$out/tcp-tls-keys.txt"
      rm /tmp/tls-keys
      keyctl clear %:.nvme
    done
  done
}

python3 -c 'import sys; sys.stdout.buffer.write(bytes((i * 7 + i // 256) & 0xff for i in range(16384)))' > /tmp/pattern
mkdir -p /run/nvme
tls_keys
target
discovery
session
digests
no_flow_control
refused
auths
{ uname -a; nvme version; } > "$out/tcp-versions.txt"
