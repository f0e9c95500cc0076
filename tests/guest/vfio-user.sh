#!/bin/bash
# vfio-user.sh - run a command in a Linux guest whose own driver drives a controller that another process
# serves.
#
#   vfio-user.sh [OPTIONS] SOCKET [CMD...]         CMD's default: ./block-check.sh (probe, data, filesystem)
#
#   unvme serve ... &                              # whatever serves an NVMe controller at SOCKET
#   tests/guest/vfio-user.sh /run/user/1000/drive.sock
#   tests/guest/vfio-user.sh SOCKET 'modprobe nvme; sleep 1; nvme list; nvme id-ctrl /dev/nvme0'
#
# QEMU is the client (its device vfio-user-pci): it maps the guest's memory into the server, passes register
# accesses on, and gives the server's interrupts to the guest. The server must be listening when this starts.
# OPTIONS
#   -d DIR  -c N  -m MB  -t SEC  -a ARGS  -q ARG  -v     as for guest.sh (which also documents the
#                                                        environment)
#   -w SEC     wait for SOCKET to appear (default 10)
#   -L         QEMU prints the vfio-user events of its trace on stderr
# EXIT CODE    CMD's own; 124 time limit; 125 the guest died, for example as the server refused something; 126
#              no start
set -u
HERE=$(dirname "$(readlink -f "$0")")
die() { echo "vfio-user: $*" >&2; exit 126; }

args=() wait_seconds=10
while getopts d:c:m:t:a:q:vw:L o; do
  case $o in
    d | c | m | t | a | q) args+=("-$o" "$OPTARG") ;;
    v) args+=(-v) ;;
    w) wait_seconds=$OPTARG ;;
    L) args+=(-q -trace -q 'vfio_user_*') ;;
    *) exit 126 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 126; }
socket=$1; shift
[ $# -gt 0 ] || set -- "$HERE/block-check.sh"

for ((i = 0; i < wait_seconds * 10; i++)); do [ -S "$socket" ] && break; sleep 0.1; done
[ -S "$socket" ] || die "no socket at $socket: start the server first"
socket=$(readlink -f "$socket")
case $socket in *[\"\\]*) die "no quotes or backslashes in the socket's path, please: $socket" ;; esac

exec "$HERE/guest.sh" run -S "${args[@]}" \
  -q -device -q "{\"driver\":\"vfio-user-pci\",\"socket\":{\"path\":\"$socket\",\"type\":\"unix\"}}" "$@"
