#!/bin/bash
# errors-check.sh - in the guest: what is missing or in the way is said, with the command that helps.
#
#   errors-check.sh iommu UNVME     a guest with an IOMMU (-i) and four controllers: 0000:01:00.0,
#                                   0000:02:00.0, and two functions of one device at 0000:00:10.0 and
#                                   0000:00:10.1, which share an IOMMU group
#   errors-check.sh plain UNVME     a guest without IOMMU and huge pages, and a controller at 0000:01:00.0
#
# Data is destroyed. Reported as check.sh says. $unvme and addresses have no blanks in them.
# shellcheck disable=SC2317,SC2086,SC2046,SC2217
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
part=$1 unvme=$2
first=0000:01:00.0 second=0000:02:00.0 twin=0000:00:10.0 other_twin=0000:00:10.1
export UNVME_HOME=/tmp/unvme

driver() { basename "$(readlink /sys/bus/pci/devices/"$1"/driver)"; }
node() { echo /dev/"$(basename "$(echo /sys/bus/pci/devices/"$1"/nvme/nvme*)")"; }
group() { basename "$(readlink /sys/bus/pci/devices/"$1"/iommu_group)"; }
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all "$@"; }
# The twins have no namespaces.
has_controller() { until_so 20 test -c "$(node "$1")"; }
has_nodes() { until_so 20 test -b "$(node "$1")n1"; }

# says CODE COMMAND... -- WORDS...: the command fails with this exit code, on one line, which has all the
# words.
says() {
  local code=$1 command=() out status=0 words; shift
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  shift
  out=$("${command[@]}" 2>&1 > /dev/null) || status=$?
  echo "$out"
  [ $status = "$code" ] || { echo "exit code $status, expected $code"; return 1; }
  case $out in *panicked*) return 1 ;; esac
  for words in "$@"; do
    case $out in *"$words"*) ;; *) echo "'$words' is not in: $out"; return 1 ;; esac
  done
}

nothing_there() {
  says 3 $unvme id-ctrl 0000:7f:00.0 -- 'no such device' "$first (nvme)"
  says 3 $unvme setup config 0000:7f:00.0 -- '0000:7f:00.0' 'no such device' $first
  says 2 $unvme id-ctrl 0000:00:1f.2 -- 'has class' 010802 $first
  says 4 $unvme id-ctrl kernel:/dev/nvme77 -- /dev/nvme77 'unvme setup status'
  says 3 $unvme id-ctrl nvme0 -- 'no such device'
  says 2 $unvme id-ctrl kernel:/dev/null -- /dev/null 'block device'
}

# A drive that the kernel has: both ways to it are named.
of_the_kernel() {
  has_nodes $first
  says 4 $unvme id-ctrl $first -- "$first is driven by the kernel, as $(node $first)" "kernel:$(node $first)" "unvme setup config $first"
}

no_driver() {
  echo $second > /sys/bus/pci/drivers/nvme/unbind
  says 4 $unvme id-ctrl $second -- "$second is bound to no driver" "unvme setup config $second"
  echo $second > /sys/bus/pci/drivers_probe
  has_nodes $second
}

mounted() {
  local disk; disk=$(node $first)n1
  mkfs.ext4 -q $disk
  mkdir -p /tmp/mnt
  mount $disk /tmp/mnt
  says 3 $unvme setup config $first -- $first /tmp/mnt "umount /tmp/mnt"
  [ "$(driver $first)" = nvme ]
  $unvme setup status | grep $first | grep /tmp/mnt
  umount /tmp/mnt
  wipefs -qa $disk
}

swapped_on() {
  local disk; disk=$(node $first)n1
  mkswap $disk
  swapon $disk
  says 3 $unvme setup config $first -- $first "swapoff $disk"
  [ "$(driver $first)" = nvme ]
  swapoff $disk
  wipefs -qa $disk
}

opened() {
  local disk; disk=$(node $first)n1
  sleep 60 < $disk &
  says 3 $unvme setup config $first -- $first "end process $!"
  kill $!
  [ "$(driver $first)" = nvme ]
}

node_of_another() {
  chmod 600 $(node $first) $(node $first | sed s/nvme/ng/)n1
  says 4 as_nobody $unvme id-ctrl kernel:$(node $first) -- "$(node $first)" 'Permission denied' setfacl
  says 4 as_nobody $unvme setup config $first -- sudo
  [ "$(driver $first)" = nvme ]
}

taken_over() {
  $unvme setup config $first
  [ "$(driver $first)" = vfio-pci ]
  $unvme id-ctrl $first > /dev/null
}

group_of_another() {
  chmod 600 /dev/vfio/$(group $first)
  says 4 as_nobody $unvme id-ctrl $first -- "no permission to open /dev/vfio/$(group $first)" "unvme setup config $first --user"
  as_nobody $unvme setup status | grep -A1 "may not open /dev/vfio/$(group $first)" | grep 'sudo unvme setup config'
}

little_memory() {
  chmod 666 /dev/vfio/vfio
  chown 65534 /dev/vfio/$(group $first)
  says 4 prlimit --memlock=65536:65536 setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all \
    $unvme id-ctrl $first -- 'cannot be locked' 'may lock 64 KiB' 'ulimit -l'
  as_nobody prlimit --memlock=65536:65536 $unvme setup status | grep 'prlimit --pid'
}

group_in_use() {
  exec 3<> /dev/vfio/$(group $first)
  says 4 $unvme id-ctrl $first 3>&- -- "$first is in use" fuser
  exec 3>&-
}

given_back() {
  $unvme setup reset $first
  [ "$(driver $first)" = nvme ]
  has_nodes $first
}

# Two functions in one group, of which the kernel keeps one.
shared_group() {
  [ "$(group $twin)" = "$(group $other_twin)" ]
  has_controller $twin
  says 4 $unvme setup config $twin -- "IOMMU group $(group $twin)" $other_twin
  [ "$(driver $twin)" = nvme ]
  echo vfio-pci > /sys/bus/pci/devices/$twin/driver_override
  echo $twin > /sys/bus/pci/devices/$twin/driver/unbind
  echo $twin > /sys/bus/pci/drivers_probe
  says 4 $unvme id-ctrl $twin -- "other devices of its IOMMU group $(group $twin)" $other_twin 'unvme setup config'
  echo > /sys/bus/pci/devices/$twin/driver_override
  echo $twin > /sys/bus/pci/drivers/vfio-pci/unbind
  echo $twin > /sys/bus/pci/drivers_probe
  has_controller $twin
}

# A controller that is taken away while commands are on their way, under the kernel's driver: they come back.
removed_under_the_kernel() {
  local io status=0 ng started
  ng=$(node $second | sed s/nvme/ng/)n1
  $unvme perf -r kernel:$ng -w randread -q 32 -o 4096 -t 60 --warmup 0 > /tmp/perf.out 2> /tmp/perf.err &
  io=$!
  sleep 3
  started=$SECONDS
  echo 1 > /sys/bus/pci/devices/$second/remove
  wait $io || status=$?
  cat /tmp/perf.err
  [ $status != 0 ]
  [ $status -le 6 ]
  [ $((SECONDS - started)) -le 20 ]
  grep -q "kernel:$ng" /tmp/perf.err
  echo 1 > /sys/bus/pci/rescan
  has_nodes $second
}

# A controller that stops in the middle: disabled from under the driver, which the reset by the kernel's sysfs
# file does.
failing_under_vfio() {
  local io status=0 started
  $unvme setup config $second
  $unvme perf -r $second -w randread -q 32 -o 4096 -t 20 --warmup 0 > /tmp/perf.out 2> /tmp/perf.err &
  io=$!
  sleep 3
  started=$SECONDS
  echo 1 > /sys/bus/pci/devices/$second/reset
  wait $io || status=$?
  cat /tmp/perf.err
  # It goes on after a reset of its own, with a word about what was lost, or ends: but in time.
  [ $status -le 4 ]
  [ $((SECONDS - started)) -le 60 ]
  $unvme id-ctrl $second > /dev/null
  $unvme setup reset $second
}

without_iommu() {
  has_nodes $first
  echo vfio-pci > /sys/bus/pci/devices/$first/driver_override
  modprobe vfio-pci
  echo $first > /sys/bus/pci/devices/$first/driver/unbind
  echo $first > /sys/bus/pci/drivers_probe || true
  if [ "$(driver $first)" = vfio-pci ]; then
    says 4 $unvme id-ctrl $first -- "$first is in no IOMMU group" uio_pci_generic
    echo $first > /sys/bus/pci/drivers/vfio-pci/unbind
  fi
  echo > /sys/bus/pci/devices/$first/driver_override
  echo $first > /sys/bus/pci/drivers_probe
  has_nodes $first
  says 4 $unvme setup config $first --driver vfio-pci -- $first IOMMU
  [ "$(driver $first)" = nvme ]
}

without_huge_pages() {
  $unvme setup config $first --driver uio_pci_generic --hugepages 0
  [ "$(driver $first)" = uio_pci_generic ]
  says 4 $unvme id-ctrl $first -- 'huge page' 'hugepages'
  $unvme setup status | grep -A1 'needs huge pages' | grep 'sudo unvme setup config'
  $unvme setup reset $first
}

too_many_huge_pages() {
  says 4 $unvme setup config $first --driver uio_pci_generic --hugepages 1T -- 'huge pages'
  [ "$(driver $first)" = nvme ]
}

modprobe -a nvme ext4
case $part in
  iommu)
    check 'a drive that is not there' nothing_there
    check 'a drive of the kernel' of_the_kernel
    check 'a drive without a driver' no_driver
    check 'a mounted drive' mounted
    check 'a drive that is swapped on' swapped_on
    check 'a drive that a process has open' opened
    check 'a node of another user' node_of_another
    check 'a drive taken over' taken_over
    check 'a group of another user' group_of_another
    check 'a low limit of locked memory' little_memory
    check 'a group in use' group_in_use
    check 'a drive given back' given_back
    check 'a group with another device' shared_group
    check 'a drive removed from under the kernel' removed_under_the_kernel
    check 'a drive reset from under VFIO' failing_under_vfio ;;
  plain)
    check 'no IOMMU' without_iommu
    check 'no huge pages' without_huge_pages
    check 'more huge pages than memory' too_many_huge_pages ;;
  *) echo "errors-check.sh: iommu or plain, not $part" >&2; exit 2 ;;
esac
exit "$failed"
