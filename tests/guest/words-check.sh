#!/bin/bash
# words-check.sh - in the guest: has `unvme WORD -o json` the keys of `nvme WORD -o json`, of the same
# controller?
#
#   words-check.sh UNVME TOOLS     reads /dev/nvme0 and its first namespace; nothing is written. TOOLS is what
#                                  `guest.sh tools` prints
#
# nvme-cli is the one of guest.sh's tools, the latest that the archive has. Keys that it has for what it
# calls a device of its own are left out: paths, slots, the host. Reported as check.sh says.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
unvme=$1
export PATH=$2:$PATH
here=$(readlink -f "$(dirname "$0")")
export UNVME_HOME=/tmp/unvme-words

# keys WORD DEVICE [OPTION...]: DEVICE is a name below /dev.
keys() {
  local word=$1 device=$2; shift 2
  nvme $word /dev/$device "$@" -o json > /tmp/theirs
  $unvme $word kernel:/dev/${device%n1} "$@" --output json > /tmp/ours
  python3 "$here/json_keys.py" /tmp/theirs /tmp/ours
}

# Without what a device of the kernel has and one of user space has not.
list_keys() {
  nvme list -o json | sed '/GenericPath/d' > /tmp/theirs
  $unvme list kernel:/dev/nvme0 -o json > /tmp/ours
  python3 "$here/json_keys.py" /tmp/theirs /tmp/ours
}

list_subsys_keys() {
  nvme list-subsys -o json | python3 -c 'import json, sys; print(json.dumps({"Subsystems": json.load(sys.stdin)[0]["Subsystems"]}))' > /tmp/theirs
  $unvme list-subsys kernel:/dev/nvme0 -o json > /tmp/ours
  python3 "$here/json_keys.py" /tmp/theirs /tmp/ours
}

# An entry for both to show.
error_log_keys() {
  refused 'Invalid Command Opcode' nvme admin-passthru /dev/nvme0 --opcode=0x7e
  keys error-log nvme0
}

both_send() {
  local block; block=$(blockdev --getss /dev/nvme0n1)
  nvme admin-passthru /dev/nvme0 --opcode=6 --cdw10=1 -l 4096 -r -b > /tmp/theirs
  $unvme admin-passthru kernel:/dev/nvme0 --opcode 6 --cdw10 1 -l 4096 -r -b > /tmp/ours
  cmp /tmp/theirs /tmp/ours
  nvme io-passthru /dev/nvme0n1 --opcode=2 -n 1 --cdw10=0 --cdw12=0 -l $block -r -b > /tmp/theirs
  $unvme io-passthru kernel:/dev/nvme0 --opcode 2 -n 1 --cdw10 0 --cdw12 0 -l $block -r -b > /tmp/ours
  cmp /tmp/theirs /tmp/ours
}

modprobe nvme
until_so 10 test -b /dev/nvme0n1 || exit
for word in id-ctrl smart-log fw-log supported-log-pages list-ctrl list-ns; do
  check "keys of $word" keys $word nvme0
done
check 'keys of error-log' error_log_keys
check 'keys of id-ns' keys id-ns nvme0n1 -n 1
check 'keys of ns-descs' keys ns-descs nvme0 -n 1
check 'keys of list' list_keys
check 'keys of list-subsys' list_subsys_keys
check 'commands by hand' both_send
exit $failed
