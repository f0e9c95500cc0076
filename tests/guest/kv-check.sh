#!/bin/bash
# kv-check.sh - in the guest: does Linux give the pairs of a Key Value namespace to programs?
#
#   kv-check.sh [CONTROLLER]    namespace 1 of /dev/nvme0 holds pairs and is empty; its pairs are destroyed
#
# The kernel makes no block device of such a namespace, only /dev/ng0n1, to which nvme-cli passes the commands
# of the Key Value Command Set; reported as check.sh says.
# shellcheck disable=SC2317
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
controller=${1:-nvme0}
namespace=/dev/ng${controller#nvme}n1

# pair OPCODE OPTIONS...: a command for the key "linux", which is in dwords 2 and 3.
pair() {
  local opcode=$1; shift
  nvme io-passthru "$namespace" --namespace-id=1 --opcode="$opcode" --cdw2=0x756e696c --cdw3=0x78 --cdw11=5 "$@"
}

is_there() {
  [ -c "$namespace" ]
  [ ! -e /dev/${controller}n1 ]
  nvme ns-descs /dev/$controller -n 1 | grep 'csi *: 0x1'
  nvme id-iocs /dev/$controller | grep 'Combination\[0\]:3'
  nvme list-ns /dev/$controller --csi 1 | grep 0x1
}

store_and_retrieve() {
  head -c 100000 /dev/urandom > /tmp/value
  if pair 0x14; then return 1; fi
  pair 0x01 --cdw10=100000 --data-len=100000 --input-file=/tmp/value --write
  pair 0x14
  pair 0x02 --cdw10=100000 --data-len=100000 --read --raw-binary > /tmp/retrieved
  cmp /tmp/value /tmp/retrieved
}

list() {
  nvme io-passthru "$namespace" --namespace-id=1 --opcode=0x06 --cdw10=64 --data-len=64 --read --raw-binary > /tmp/keys
  [ "$(od -An -tx1 -N12 /tmp/keys | tr -d ' \n')" = 0100000005006c696e757800 ]
}

delete() {
  pair 0x10
  if pair 0x14; then return 1; fi
}

[ "$controller" != nvme0 ] || modprobe nvme
for _ in $(seq 50); do [ -e $namespace ] && break; sleep 0.1; done
check 'the kernel knows the namespace' is_there
check 'a value of 100000 bytes comes back' store_and_retrieve
check 'its key is listed' list
check 'it is gone when it is deleted' delete
exit "$failed"
