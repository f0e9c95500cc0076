#!/bin/bash
# fdp-check.sh - in the guest: do the kernel, nvme-cli and fio find Flexible Data Placement as they expect it?
#
#   fdp-check.sh                   all namespaces of /dev/nvme0 are destroyed; FDP is enabled, with
#                                  configuration 0
#
# The steps by which nvme-cli's users enable FDP, then writes with placement identifiers by nvme-cli, and by
# fio where it knows them; reported as check.sh says. $controller has no blanks in it.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
controller=/dev/nvme0
namespace=/dev/ng0n1

# statistic NAME: a counter of the FDP statistics, in bytes.
statistic() { nvme fdp stats $controller -e 1 | sed -n "s/.*($1): *//p" | tr -d ' '; }

capability() {
  local ctratt
  ctratt=$(nvme id-ctrl $controller | sed -n 's/^ctratt *: *//p')
  [ $((ctratt >> 19 & 1)) = 1 ]
  [ $((ctratt >> 4 & 1)) = 1 ]
  nvme fdp configs $controller -e 1 | grep -i 'Number of Reclaim Unit Handles'
}

# The feature is saved, and cannot change while the endurance group has namespaces.
enable() {
  local nsid out
  if out=$(nvme set-feature $controller -f 0x1d -v 1 -c 0 -s 2>&1); then return 1; fi
  grep -i sequence <<< "$out"
  for nsid in $(nvme list-ns $controller --all | sed -n 's/.*:0x//p'); do nvme delete-ns $controller -n "0x$nsid"; done
  nvme set-feature $controller -f 0x1d -v 1 -c 0x1 -s
  nvme get-feature $controller -f 0x1d --cdw11=1 | grep -i '0*1$'
}

# nvme-cli 2.3 cannot name placement handles: NPHNDLS is at 392 and the list at 512 of what a namespace is
# created from.
create() {
  local blocks=32768
  head -c 4096 /dev/zero > /tmp/create
  put() { printf '%b' "$2" | dd of=/tmp/create bs=1 seek="$1" conv=notrunc 2> /dev/null; }
  put 0 "\\x00\\x$(printf %02x $((blocks >> 8)))"
  put 8 "\\x00\\x$(printf %02x $((blocks >> 8)))"
  put 26 '\x01'
  put 102 '\x01'
  put 392 '\x04'
  put 512 '\x00\x00\x01\x00\x02\x00\x03\x00'
  nvme admin-passthru $controller --opcode=0x0d --cdw10=0 --data-len=4096 --input-file=/tmp/create --write
  nvme attach-ns $controller -n 1 -c "$(nvme id-ctrl $controller | sed -n 's/^cntlid *: *//p')"
  for _ in $(seq 50); do [ -e $namespace ] && break; sleep 0.1; done
  [ -c $namespace ]
}

directives() {
  [ $(($(nvme id-ctrl $controller | sed -n 's/^oacs *: *//p') >> 5 & 1)) = 1 ]
  # Bytes 0 and 32: supported and enabled, bit 2 data placement.
  nvme dir-receive $controller -n 1 -D 0 -O 1 -l 4096 -b > /tmp/directives
  [ $((0x$(od -An -tx1 -N1 /tmp/directives | tr -d ' ') >> 2 & 1)) = 1 ]
  [ $((0x$(od -An -tx1 -j32 -N1 /tmp/directives | tr -d ' ') >> 2 & 1)) = 1 ]
}

placed_writes() {
  local before after
  before=$(statistic HBMW)
  head -c 65536 /dev/urandom > /tmp/data
  nvme write $namespace -s 0 -c 15 -z 65536 -d /tmp/data -T 2 -S 1
  nvme read $namespace -s 0 -c 15 -z 65536 -d /tmp/read
  cmp /tmp/data /tmp/read
  after=$(statistic HBMW)
  [ $((after - before)) = 65536 ]
  nvme fdp status $namespace -n 1 | grep -c 'Placement Identifier' | grep 4
}

update() {
  nvme fdp set-events $controller -n 1 -p 2 -e -t 0 || nvme fdp set-events $namespace -n 1 -p 2 -e -t 0
  nvme write $namespace -s 64 -c 0 -z 4096 -d /tmp/data -T 2 -S 2
  nvme fdp update $namespace -n 1 -p 2
  nvme fdp events $controller -e 1 -E | grep -i 'not fully written'
}

# fio places data from 3.34 on; what Debian 12 has writes without.
passthrough() {
  local placed=()
  if fio --parse-only --name=placed --ioengine=io_uring_cmd --fdp=1 --size=4k; then placed=(--fdp=1 '--fdp_pli=0,1,2,3'); fi
  fio --name=data --filename=$namespace --ioengine=io_uring_cmd --cmd_type=nvme --rw=randwrite --bs=4k --iodepth=8 \
    --size=64m "${placed[@]}" --verify=crc32c --verify_state_save=0
}

modprobe nvme
for _ in $(seq 50); do [ -e $namespace ] && break; sleep 0.1; done
check 'capability and configurations' capability
check 'enabled once the namespaces are gone' enable
check 'a namespace with four placement handles' create
check 'directives' directives
check 'writes with a placement identifier are counted' placed_writes
check 'a reclaim unit handle is updated, and the event logged' update
check 'fio writes through io_uring passthrough and verifies' passthrough
exit "$failed"
