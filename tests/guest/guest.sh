#!/bin/bash
# guest.sh - boot a throw-away Linux guest with emulated NVMe controllers and run one command in it.
#
#   guest.sh prepare               fetch kernel and QEMU, pack the initramfs (run does it too, when needed)
#   guest.sh tools                 prints the path of a folder with nvme, tlshd, mdadm, lvm and keyctl of
#                                  trixie, which guests can run
#   guest.sh about                 prints QEMU's version, the accelerator and the kernel that run would use
#   guest.sh run [OPTIONS] CMD...  boot, run CMD (its words joined, by sh -c), pass on its output and its exit
#                                  code
#
# The guest sees the host's / read-only below a tmpfs (so every host program and library is there and writes
# vanish; /tmp, /run and /dev are its own), and DIR read-write at the same path as on the host. CMD runs as
# root in DIR. No module is loaded for it: `modprobe nvme`, `modprobe vfio-pci`, ... as needed. OPTIONS
#   -d DIR     read-write shared directory                        (default: current directory)
#   -n KIND[,NS-PROPERTY=V...]   add an NVMe controller with one namespace (repeatable; serial GUEST0, GUEST1,
#                                ...):
#              plain | fdp | zns | null (no storage, fastest) | img:FILE (kept); e.g.
#              plain,logical_block_size=4096,physical_block_size=4096
#   -n +KIND[,NS-PROPERTY=V...]  add one more namespace to the controller before
#   -s SIZE    namespace size (default: 1G)      -i  guest IOMMU, for vfio-pci
#   -N         user networking: the host's 127.0.0.1 is 10.0.2.2 in the guest
#   -p H:G     with -N: 127.0.0.1:H of the host goes to the guest's port G (repeatable)
#   -H N       N huge pages of 2 MiB   -c N  virtual CPUs (default 1)   -m MB  memory (default 1024)
#   -S         guest memory in a shared memfd, for device processes outside QEMU
#   -V         violations count: exit code 123 when QEMU's controllers saw the driver break the protocol, or
#              the guest's IOMMU a wrong DMA; -E NAME expects the event pci_nvme_NAME, such as err_invalid_opc
#              (repeatable)
#   -M         the guest has QEMU's monitor at /dev/monitor: echo 'device_del nvme0' > /dev/monitor
#   -t SEC     time limit (default 300)
#   -q ARG     one more QEMU argument (repeatable)   -a ARGS  more kernel arguments   -v  kernel log to stderr
#                                                                                         at the end
# ENVIRONMENT
#   GUEST_CACHE   kernel, initramfs, QEMU (default: target/guest of this checkout)
#   GUEST_KERNEL  kernel release, as in linux-image-$GUEST_KERNEL (default: the cached one, else what Debian
#                 has now)
#   GUEST_QEMU    QEMU binary (default: QEMU of trixie-backports, unpacked in the cache)
#   GUEST_ACCEL   kvm | tcg | auto (default auto: kvm where a trial boot under it succeeds, else tcg)
# EXIT CODE       CMD's own; 123 violations (-V); 124 time limit; 125 the guest died without a report; 126 the
#                 guest could not start; 77 it could not be downloaded, or lacks host packages
set -u
SELF=$(readlink -f "$0") HERE=$(dirname "$(readlink -f "$0")")
GUEST_CACHE=${GUEST_CACHE:-$(dirname "$(dirname "$HERE")")/target/guest}
BOOT_MODULES="9pnet_virtio 9p overlay configfs virtio_console virtio_pci"   # what init needs before it has a root
HOST_PACKAGES="busybox-static kmod cpio xz-utils zstd lz4 python3 pciutils nvme-cli fio xfsprogs"

die() { echo "guest: $*" >&2; exit 126; }
unavailable() { echo "guest: $*" >&2; exit 77; }
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$HERE/packages.sh"

# --- what the host itself must have
# -----------------------------------------------------------------------------
host_tools() {
  local missing=() p
  for p in $HOST_PACKAGES; do
    dpkg-query -W -f '${Status}' "$p" 2> /dev/null | grep -q 'ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get > /dev/null || unavailable "missing packages, named as in Debian: ${missing[*]}"
  [ "$(id -u)" = 0 ] || unavailable "missing packages; as root: apt-get install --no-install-recommends ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive timeout -k 5 "$FETCH_SECONDS" sh -c 'apt-get -q update && \
    apt-get -q install -y --no-install-recommends "$@"' sh "${missing[@]}" >&2 || unavailable "cannot install ${missing[*]}"
}

# --- prepare: kernel package -> ELF vmlinux and an uncompressed initramfs
# ------------------------------------------
kernel_release() {
  local cached
  cached=$(find "$GUEST_CACHE/kernel" -mindepth 2 -maxdepth 2 -name vmlinux 2> /dev/null | sort -V | tail -1)
  if [ -n "$cached" ]; then basename "$(dirname "$cached")"; return; fi
  (archive_ready) || exit
  apt_private apt-cache depends linux-image-amd64 2> /dev/null | sed -n 's/^  Depends: linux-image-//p' | head -1
}

kernel_image() { find "$KDIR/boot" -maxdepth 1 -name 'vmlinuz*' 2> /dev/null | head -1; }

prepare() {
  host_tools
  mkdir -p "$KDIR" || die "cannot make $KDIR"
  if [ -z "$(kernel_image)" ]; then
    archive_ready
    unpack "$KDIR" "linux-image-$GUEST_KERNEL"
    [ -d "$KDIR/lib/modules" ] || ln -s usr/lib "$KDIR/lib"
    depmod -b "$KDIR" "$GUEST_KERNEL" || die "depmod failed"
  fi
  if ! [ -s "$VMLINUX" ]; then
    python3 "$HERE/vmlinux.py" "$(kernel_image)" "$VMLINUX.$$" || die "cannot unpack $(kernel_image)"
    mv "$VMLINUX.$$" "$VMLINUX"
  fi
  pack_initramfs
}

pack_initramfs() {
  local t f m n=10; t=$(mktemp -d) || die "mktemp"
  mkdir -p "$t"/{bin,m,proc,sys,dev,lower,rw,new}
  cp "$(command -v busybox)" "$t/bin/busybox" || die "no busybox (install busybox-static)"
  for m in $BOOT_MODULES; do
    modprobe -d "$KDIR" -S "$GUEST_KERNEL" --show-depends "$m" 2> /dev/null | sed -n 's/^insmod \(.*[^ ]\) *$/\1/p'
  done | awk '!seen[$0]++' | while read -r f; do   # in load order, unpacked: busybox insmod wants plain .ko
    m=$t/m/$((n++))-$(basename "${f%%.ko*}").ko
    case $f in *.xz) xz -dc "$f" ;; *.zst) zstd -dc "$f" ;; *) cat "$f" ;; esac > "$m"
  done
  [ -n "$(find "$t/m" -name '*-9p.ko' -size +0)" ] || die "no modules for 9p in $KDIR"
  install -m 755 "$HERE/init" "$t/init"
  (cd "$t" && find . | cpio -o -H newc --quiet) > "$INITRD.$$" && mv "$INITRD.$$" "$INITRD"
  rm -rf "$t"
}

# --- accelerator: a /dev/kvm that opens is not always one that boots a guest (nested and paravirtual hosts)
# ---------
pick_accel() {
  case ${GUEST_ACCEL:-auto} in kvm | tcg) echo "$GUEST_ACCEL"; return ;; esac
  { [ -w /dev/kvm ] && true < /dev/kvm; } 2> /dev/null || { echo tcg; return; }
  [ -e /sys/module/kvm_pvm ] && { echo tcg; return; }   # PVM interprets ordinary guest kernels: far slower than tcg
  local c; c=$GUEST_CACHE/accel-$(uname -r)
  if ! [ -s "$c" ]; then                                # else one trial boot of at most 20 s, remembered
    if [ "$(GUEST_ACCEL=kvm "$SELF" run -t 20 'echo ok' 2> /dev/null)" = ok ]; then echo kvm; else echo tcg; fi > "$c"
  fi
  cat "$c"
}

# --- run: the options, then QEMU's arguments in the array Q
# --------------------------------------------------------
options() {
  DIR=$PWD KINDS=() FORWARD='' SIZE=1073741824 IOMMU='' NET='' HUGE='' CPUS=1 MEM=1024 SHARE='' LIMIT=300 EXTRA=() KARGS='' VERBOSE=''
  VIOLATIONS='' EXPECTED=() MONITOR=''
  local o
  while getopts d:n:s:iNp:H:c:m:SVE:Mt:q:a:v o; do
    case $o in
      d) DIR=$(cd "$OPTARG" && pwd) || die "no directory $OPTARG" ;;
      s) SIZE=$(numfmt --from=iec "$OPTARG") || die "bad size $OPTARG" ;;
      p) FORWARD+=",hostfwd=tcp:127.0.0.1:${OPTARG%:*}-:${OPTARG#*:}" ;;
      n) KINDS+=("$OPTARG") ;; i) IOMMU=1 ;; N) NET=1 ;; H) HUGE=$OPTARG ;; c) CPUS=$OPTARG ;; m) MEM=$OPTARG ;;
      V) VIOLATIONS=1 ;; E) EXPECTED+=("$OPTARG") ;; M) MONITOR=1 ;;
      S) SHARE=1 ;; t) LIMIT=$OPTARG ;; q) EXTRA+=("$OPTARG") ;; a) KARGS=$OPTARG ;; v) VERBOSE=1 ;; *) exit 126 ;;
    esac
  done
}

machine_args() {
  local append accel
  append="console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check audit=0 random.trust_cpu=on"
  Q=("$GUEST_QEMU" -nodefaults -no-user-config -display none -no-reboot -m "$MEM" -smp "$CPUS"
    -kernel "$VMLINUX" -initrd "$WORK/initrd" -append "$append ${IOMMU:+intel_iommu=on} $KARGS" -serial "file:$WORK/klog"
    -device virtio-serial-pci
    -chardev "file,id=o,path=/dev/fd/8,append=on" -device "virtserialport,chardev=o,nr=1"
    -chardev "file,id=e,path=/dev/fd/9,append=on" -device "virtserialport,chardev=e,nr=2"
    -chardev "file,id=r,path=$WORK/rc" -device "virtserialport,chardev=r,nr=3"
    -fsdev "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"
    -device "virtio-9p-pci,fsdev=root,mount_tag=hostroot"
    -fsdev "local,id=dir,path=$DIR,security_model=none,multidevs=remap" -device "virtio-9p-pci,fsdev=dir,mount_tag=hostdir"
    -fsdev "local,id=mod,path=$KDIR/lib/modules,security_model=none,readonly=on"
    -device "virtio-9p-pci,fsdev=mod,mount_tag=modules")
  accel=$(pick_accel)
  if [ "$accel" = kvm ]; then Q+=(-accel kvm -cpu host); else Q+=(-accel "tcg,thread=multi,tb-size=256" -cpu "max,la57=off"); fi
  if [ -n "$IOMMU" ]; then Q+=(-M "q35,kernel-irqchip=split" -device "intel-iommu,intremap=on"); else Q+=(-M q35); fi
  [ -n "$SHARE" ] && Q+=(-object "memory-backend-memfd,id=mem,size=${MEM}M,share=on" -machine "memory-backend=mem")
  [ -n "$NET" ] && Q+=(-netdev "user,id=n,ipv6=off$FORWARD" -device "virtio-net-pci,netdev=n")
  [ -n "$VIOLATIONS" ] && Q+=(-trace "pci_nvme_err_*" -trace "pci_nvme_ub_*" -D "$WORK/trace")
  # A fourth port, wired to the monitor inside QEMU: the guest itself can take its devices away.
  [ -n "$MONITOR" ] && Q+=(-chardev "socket,id=hmp,path=$WORK/hmp,server=on,wait=off" -object "monitor-hmp,id=monitor,chardev=hmp,readline=off"
    -chardev "socket,id=port,path=$WORK/hmp" -device "virtserialport,chardev=port,nr=4")
  return 0
}

# A controller behind a root port of its own, which can be taken away while the guest runs.
controller_args() {
  local k=$1 kind=$2 ctl="nvme,id=nvme$1,serial=GUEST$1,bus=rp$1"
  Q+=(-device "pcie-root-port,id=rp$k,chassis=$k,slot=$k")
  if [ "$kind" = fdp ]; then
    Q+=(-device "nvme-subsys,id=ss$k,fdp=on,fdp.nruh=8,fdp.nrg=1,fdp.runs=16M")
    ctl+=",subsys=ss$k"
  fi
  Q+=(-device "$ctl")
}

nvme_args() {
  local controller=-1 drive=0 nsid=0 more kind backend properties image
  for kind in "${KINDS[@]}"; do
    more=${kind%%[!+]*} kind=${kind#+}
    properties=${kind#"${kind%%,*}"} kind=${kind%%,*} image=$WORK/nvme$drive.img
    case $kind in img:*) image=${kind#img:} ;; esac
    backend="file,node-name=nvm$drive,discard=unmap,filename=$image"
    case $kind in
      plain | img:*) ;;
      null) backend="null-co,node-name=nvm$drive,size=$SIZE,read-zeroes=off" ;;
      fdp) properties=",fdp.ruhs=0-7$properties" ;;
      zns) properties=",zoned=on,zoned.zone_size=16M,zoned.max_open=8,zoned.max_active=16$properties" ;;
      *) die "unknown NVMe kind $kind" ;;
    esac
    [ "$kind" = null ] || [ -e "$image" ] || truncate -s "$SIZE" "$image" || die "cannot make $image"
    if [ -n "$more" ]; then
      [ $controller -ge 0 ] || die "-n $more$kind: no controller before it"
      nsid=$((nsid + 1))
    else
      controller=$((controller + 1)) nsid=1
      controller_args $controller "$kind"
    fi
    Q+=(-blockdev "$backend" -device "nvme-ns,drive=nvm$drive,bus=nvme$controller,nsid=$nsid$properties")
    drive=$((drive + 1))
  done
}

# violations: prints what QEMU's controllers and the guest's IOMMU complained of, and succeeds when there is
# any of it. An error status alone (err_req_status) is an answer, and no violation.
violations() {
  local expected
  expected=$(printf '%s\n' "${EXPECTED[@]}" | sed -n 's/^./|pci_nvme_&/p' | tr -d '\n')
  { grep -wE 'pci_nvme_(err|ub)_[a-z0-9_]*' "$WORK/trace" 2> /dev/null | grep -vwE "pci_nvme_err_req_status${expected}"
    grep -E 'DMAR: (\[|DRHD: handling fault)|AMD-Vi: Event logged' "$WORK/klog"; } | sort | uniq -c | head -30 | grep .
}

run() {
  options "$@"; shift $((OPTIND - 1))
  [ $# -gt 0 ] || die "run: no command"
  command -v "$GUEST_QEMU" > /dev/null || die "no QEMU at $GUEST_QEMU"
  { [ -s "$VMLINUX" ] && [ "$INITRD" -nt "$HERE/init" ] && [ "$INITRD" -nt "$SELF" ]; } || (prepare) || exit

  WORK=$(mktemp -d "${TMPDIR:-/tmp}/guest.XXXXXX") || die "mktemp"
  trap 'rm -rf "$WORK"' EXIT
  mkdir "$WORK/i"; printf '%s\n' "$*" > "$WORK/i/guest.cmd"
  printf "GUEST_CHECKOUT='%s' GUEST_DIR='%s' GUEST_NET=%s GUEST_HUGE=%s GUEST_MONITOR=%s\n" "$(readlink -f "$HERE/../..")" "$DIR" "$NET" "$HUGE" "${MONITOR:+4}" > "$WORK/i/guest.env"
  { cat "$INITRD"; (cd "$WORK/i" && find guest.* | cpio -o -H newc --quiet); } > "$WORK/initrd"
  machine_args; nvme_args

  local out err st rc              # the two cats make any stdout and stderr, even a socket, openable by path
  exec 8> >(exec cat); out=$!; exec 9> >(exec 8>&-; exec cat >&2); err=$!
  timeout --foreground -k 5 "$LIMIT" "${Q[@]}" "${EXTRA[@]}" < /dev/null; st=$?
  exec 8>&- 9>&-; wait "$out" "$err"
  [ -n "$VERBOSE" ] && cat "$WORK/klog" >&2
  rc=$(sed -n 's/^rc //p' "$WORK/rc" 2> /dev/null)
  if [ -n "$VIOLATIONS" ] && violations >&2; then echo "guest: violations, see above" >&2; [ "$rc" != 0 ] || rc=123; fi
  [ -n "$rc" ] && exit "$rc"
  [ $st = 124 ] && { echo "guest: time limit of $LIMIT s" >&2; exit 124; }
  echo "guest: it ended without a report (QEMU's status $st); the end of its kernel log:" >&2
  tail -15 "$WORK/klog" >&2; exit 125
}

case ${1:-} in prepare | tools | about | run) ;; *) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$SELF"; exit 126 ;; esac
mkdir -p "$GUEST_CACHE" || die "cannot make $GUEST_CACHE"
GUEST_KERNEL=${GUEST_KERNEL:-$(kernel_release)} || exit; [ -n "$GUEST_KERNEL" ] || unavailable "no kernel in the archive; set GUEST_KERNEL"
GUEST_QEMU=${GUEST_QEMU:-$(private_qemu)} || exit
KDIR=$GUEST_CACHE/kernel/$GUEST_KERNEL VMLINUX=$KDIR/vmlinux INITRD=$KDIR/initrd.cpio
case $1 in
  prepare) prepare ;;
  tools) private_tools ;;
  about) echo "$("$GUEST_QEMU" --version | sed -n 's/^QEMU emulator version /QEMU /p'), $(pick_accel), Linux $GUEST_KERNEL" ;;
  run) shift; run "$@" ;;
esac
