# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# parts.sh - the parts of test-vm.sh, which sources this: what is served, which guests are booted, what they
# run.
PARTS=(violations blocks pairs placement filesystems power clients firmware vfio uio setup errors guide hotplug kernel directives
  tcp_target tcp_host clusters tcp_long)
SHORT_PARTS=(short_drive short_served short_tcp)

# --- that guest.sh notices when the rules are broken
# ----------------------------------------------------------------
part_violations() {
  local option found
  for option in '-i' ''; do
    # shellcheck disable=SC2086
    found=$("$HERE/guest.sh" run $option -V -n null "python3 $HERE/violate.py 0000:01:00.0" 2>&1); status=$?
    if [ $status = 123 ] && grep -q pci_nvme_ub_db_wr_invalid_sq <<< "$found"; then
      pass "a wrong doorbell is noticed ${option:-without -i}"
    else
      fail "a wrong doorbell is noticed ${option:-without -i}"
    fi
  done
  if "$HERE/guest.sh" run -i -V -E ub_db_wr_invalid_sq -E err_addr_read -E err_cfs -n null \
    "python3 $HERE/violate.py 0000:01:00.0" 2>&1 | grep -q 'DMAR: .*fault addr 0x3ffffff0000'; then
    pass 'a wrong DMA is noticed'
  else
    fail 'a wrong DMA is noticed'
  fi
}

# --- the guest's kernel drives our virtual SSD
# -------------------------------------------------------------------------
part_blocks() {
  local block options=()
  for block in 512 4096; do
    echo "mem:block:512M,block=$block"
    serve "mem:block:512M,block=$block"
    ours blocks "$HERE/block-check.sh" "${options[@]}"
    ours admin "$HERE/admin-check.sh" "${options[@]}"
    no_warnings server
    # Linux does without our identifiers for the PCI identity that we share with QEMU's controller: once with
    # another one.
    options=(-q -global -q vfio-user-pci.x-pci-device-id=0x1111)
  done
}

part_pairs() {
  serve mem:kv:512M
  ours pairs "$HERE/kv-check.sh"
  no_warnings server
}

# create SLOT OPTION...: a virtual slot.
create() {
  if "$unvme" device create "$@" > /dev/null; then pass "create $1"; else fail "create $1"; fi
}

part_placement() {
  create 0000:03:00.0 --size 512M --block 4096 --fdp
  serve 0000:03:00.0
  ours blocks "$HERE/block-check.sh"
  ours placement "$HERE/fdp-check.sh"
  no_warnings server
}

part_filesystems() {
  local type
  create 0000:04:00.0 --size 512M
  for type in ext4 xfs; do
    serve 0000:04:00.0
    ours "$type" "$HERE/filesystem-check.sh whole $type"
    rm -f "$work/synced"
    interrupted "$type, server killed" server "$HERE/filesystem-check.sh crash $type $work" 2> /dev/null
    serve 0000:04:00.0
    ours "$type, after the server was killed" "$HERE/filesystem-check.sh recover $type $work"
    rm -f "$work/synced"
    interrupted "$type, guest killed" guest "$HERE/filesystem-check.sh crash $type $work" 2> /dev/null
    ours "$type, after the guest was killed" "$HERE/filesystem-check.sh recover $type $work"
    no_warnings server
  done
}

part_power() {
  create 0000:02:00.0 --size 512M
  serve 0000:02:00.0
  interrupted 'guest killed' guest "$HERE/power-check.sh fill $work/flag" 2> /dev/null
  ours 'data after that' "$HERE/power-check.sh verify"
  interrupted 'server killed' server "$HERE/power-check.sh fill $work/flag" 2> /dev/null
  serve 0000:02:00.0
  ours 'data after that too' "$HERE/power-check.sh verify"
  no_warnings server
}

# --- our driver on QEMU's controllers
# ------------------------------------------------------------------------------- What drive-check.sh wants.
# It asks for a log page that only key-value drives have, and says so.
of_4096=,logical_block_size=4096,physical_block_size=4096
DRIVES=(-E err_invalid_log_page -n plain -n "+plain$of_4096" -n plain -n zns)

# A function level reset from outside takes bus mastering and the queues away while commands go on: QEMU says
# so.
RESET=(-E ub_db_wr_invalid_sq -E err_addr_read -E err_cfs)
part_vfio() { qemus 'vfio-pci' "$HERE/drive-check.sh vfio-pci $unvme" -i "${RESET[@]}" "${DRIVES[@]}"; }

part_uio() {
  qemus 'uio_pci_generic' "$HERE/drive-check.sh uio_pci_generic $unvme" -t 900 -m 1536 -H 256 "${RESET[@]}" "${DRIVES[@]}"
}

# Drives that are in use are left alone; the others go to user space and back.
part_setup() {
  qemus 'setup' "$HERE/setup-check.sh $unvme vfio" -i -n plain -n plain
  qemus 'setup without an IOMMU' "$HERE/setup-check.sh $unvme uio" -n plain -n plain
}

part_errors() {
  qemus 'what is missing' "$HERE/errors-check.sh iommu $unvme" -i -n plain -n plain \
    -q -device -q nvme,id=twin0,serial=TWIN0,addr=10.0,multifunction=on -q -device -q nvme,id=twin1,serial=TWIN1,addr=10.1
  qemus 'what is missing without an IOMMU' "$HERE/errors-check.sh plain $unvme" -n plain
}

# The commands of docs/real-drives.md. QEMU logs what an exchange under load cancels.
part_guide() { qemus 'the guide' "$HERE/real-drives-check.sh $unvme" -i -E err_aio -a iommu=pt -H 128 -m 1536 -n plain; }

part_hotplug() {
  local spare=(-q -blockdev -q 'null-co,node-name=spare0,size=1073741824,read-zeroes=off')
  qemus 'vfio-pci' "$HERE/hotplug-check.sh vfio-pci $unvme" -i -M -n null -n null "${spare[@]}"
  qemus 'kernel' "$HERE/hotplug-check.sh nvme $unvme" -M -n null -n null "${spare[@]}"
}
# --- beside the kernel's driver
# -------------------------------------------------------------------------------------
part_kernel() { qemus kernel "$HERE/kernel-check.sh $unvme" -s 256M -n "plain$of_4096" -n +plain; }

part_directives() {
  qemus placement "$HERE/kernel-check.sh $unvme fdp" -n fdp
  serve mem:kv:256M
  ours 'pairs through the kernel' "$HERE/kernel-check.sh $unvme kv"
  no_warnings server
}

# --- several clients: a guest, and programs of the host
# ----------------------------------------------------------------
part_clients() {
  local guest status=0
  create 0000:05:00.0 --size 512M
  serve 0000:05:00.0
  rm -f "$work/flag"
  "$HERE/vfio-user.sh" -d "$work" -t 180 "$work/socket" "$HERE/power-check.sh fill $work/flag" > "$work/out" 2> "$work/err" &
  guest=$!
  for _ in $(seq 1200); do [ -e "$work/flag" ] && break; sleep 0.1; done
  if "$unvme" smart-log 0000:05:00.0 > "$work/smart" && grep -q temperature "$work/smart"; then
    pass 'smart-log while a guest writes'
  else
    fail 'smart-log while a guest writes'
  fi
  if "$unvme" perf -r 0000:05:00.0 -w randread -q 8 -t 2 --range 16M > "$work/perf"; then
    pass 'perf while a guest writes'
  else
    fail 'perf while a guest writes'
  fi
  wait $guest || status=$?
  if [ $status = 0 ]; then pass 'the guest beside them'; else fail "the guest beside them"; sed 's/^/    /' "$work/err"; fi
  ours 'data after that' "$HERE/power-check.sh verify"
  no_warnings server
}

# Firmware by our commands, beside the guest's kernel and in its place. An image is wrong on purpose, so the
# server may warn.
part_firmware() {
  serve mem:block:256M
  ours firmware "$HERE/firmware-check.sh $unvme"
  stop
}

# --- over TCP: target and initiator in one guest, one of them the kernel's
# ------------------------------------------------- over_tcp NAME CHECK [WORD...]: CHECK is given our program
# and the folder of tools.
over_tcp() {
  local name=$1 script=$2; shift 2
  counted "$name" "$HERE/guest.sh" run -d "$work" -c 2 -m 2048 -t $((900 + ${2:-0})) "$HERE/$script" "$unvme" "$tools" "$@"
  [ "$reported" -gt 0 ] || fail "$name, no check reported"
}

part_tcp_target() { over_tcp 'our target' tcp-check.sh whole; }

part_tcp_host() { over_tcp 'our initiator' tcp-host-check.sh; }

# The commands of docs/clusters.md.
part_clusters() { over_tcp 'clusters' clusters-check.sh; }

part_tcp_long() { over_tcp 'our target for ten minutes' tcp-check.sh long 600; }

# --- the short form
# ----------------------------------------------------------------------------------------------------
part_short_drive() {
  qemus 'vfio-pci' "$HERE/drive-check.sh vfio-pci $unvme short" -i "${DRIVES[@]}"
}

part_short_served() {
  serve mem:block:512M,block=4096
  # First what is compared: the device is not itself any more when the administration has been tried.
  ours served "$HERE/words-check.sh $unvme $tools && $HERE/block-check.sh 16 &&
    $HERE/admin-check.sh"
  no_warnings server
}

part_short_tcp() { over_tcp 'our target' tcp-check.sh short; }
