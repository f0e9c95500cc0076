#!/bin/bash
# test-vm.sh - serve virtual SSDs and let the driver of a Linux guest check them: `make test-vm`.
#
#   test-vm.sh UNVME               UNVME is the program to test
#
# For each block size: block-check.sh, then admin-check.sh in a second guest on the same server. Then kv-check.sh on pairs,
# block-check.sh and fdp-check.sh on a device with reclaim units, and what a killed guest and a killed server leave behind.
# About four minutes without KVM. The last line is "N passed, N failed"; the exit code is not 0 when anything failed. TMPDIR,
# GUEST_CACHE and so on are as for guest.sh.
set -u
HERE=$(dirname "$(readlink -f "$0")")
unvme=$(readlink -f "${1:?the program to test}") || exit 2
work=$(mktemp -d "${TMPDIR:-/tmp}/test-vm.XXXXXX") || exit 2
server='' passed=0 failed=0 options=()
export UNVME_HOME=$work/home
stop() { [ -z "$server" ] || { kill "$@" "$server" 2> /dev/null; wait "$server" 2> /dev/null; server=''; }; }
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

pass() { passed=$((passed + 1)); echo "  $1: ok"; }
fail() { failed=$((failed + 1)); echo "  $1: FAILED"; }

# serve DEVICE: at $work/socket; whatever it warns of is in $work/log.
serve() {
  UNVME_LOG=warn "$unvme" serve "$1" --socket "$work/socket" > "$work/serve.out" 2> "$work/log" &
  server=$!
  for _ in $(seq 100); do [ -S "$work/socket" ] && return; sleep 0.1; done
  fail "serve $1"; sed 's/^/    /' "$work/log"
}

# guest NAME COMMAND: each line "WHAT: ok" or "WHAT: FAILED" of the guest counts, and how it ends.
guest() {
  local name=$1 what verdict status failures=0; shift
  "$HERE/vfio-user.sh" -d "$work" -c 2 -t 280 "${options[@]}" "$work/socket" "$*" > "$work/out" 2> "$work/err"; status=$?
  while IFS= read -r what; do
    verdict=${what##*: } what="$name, ${what%: *}"
    case $verdict in ok) pass "$what" ;; FAILED) fail "$what"; failures=$((failures + 1)) ;; esac
  done < <(grep -E ': (ok|FAILED)$' "$work/out")
  if [ $status = 0 ]; then pass "$name"; return; fi
  [ $failures -gt 0 ] || fail "$name (exit code $status)"
  sed 's/^/    /' "$work/err"
}

# interrupted NAME PID-COMMAND: starts a guest that writes, and when it does kills the process that the command names.
interrupted() {
  local name=$1 guest
  "$HERE/vfio-user.sh" -d "$work" -t 120 "$work/socket" "$HERE/power-check.sh fill $work/flag" > "$work/out" 2> "$work/err" &
  guest=$!
  for _ in $(seq 600); do [ -e "$work/flag" ] && break; sleep 0.1; done
  if [ -e "$work/flag" ]; then pass "$name, writing"; else fail "$name, writing"; sed 's/^/    /' "$work/err"; fi
  sleep 2; rm -f "$work/flag"
  if [ "$2" = server ]; then stop -9; else kill_tree $guest; fi
  wait $guest
}

# kill_tree PID: the process and everything below it, QEMU among them.
kill_tree() {
  local child
  # shellcheck disable=SC2013
  for child in $(cat /proc/"$1"/task/*/children 2> /dev/null); do kill_tree "$child"; done
  kill -9 "$1" 2> /dev/null
}

# no_warnings NAME: stops the server, which has had nothing to complain about.
no_warnings() {
  stop
  if [ -s "$work/log" ]; then fail "$1, server's log"; sed 's/^/    /' "$work/log"; else pass "$1, server's log"; fi
}

"$HERE/guest.sh" prepare || exit
for block in 512 4096; do
  echo "mem:block:512M,block=$block"
  serve "mem:block:512M,block=$block"
  guest blocks "$HERE/block-check.sh"
  guest admin "$HERE/admin-check.sh"
  no_warnings server
  # Linux does without our identifiers for the PCI identity that we share with QEMU's controller: once with another one.
  options=(-q -global -q vfio-user-pci.x-pci-device-id=0x1111)
done

echo "mem:kv:512M"
serve mem:kv:512M
guest pairs "$HERE/kv-check.sh"
no_warnings server

echo "a virtual slot with reclaim units"
if "$unvme" device create 0000:03:00.0 --size 512M --block 4096 --fdp > /dev/null; then pass create; else fail create; fi
serve 0000:03:00.0
guest blocks "$HERE/block-check.sh"
guest placement "$HERE/fdp-check.sh"
no_warnings server

echo "a virtual slot"
if "$unvme" device create 0000:02:00.0 --size 512M > /dev/null; then pass create; else fail create; fi
serve 0000:02:00.0
interrupted 'guest killed' guest 2> /dev/null
guest 'data after that' "$HERE/power-check.sh" verify
interrupted 'server killed' server 2> /dev/null
serve 0000:02:00.0
guest 'data after that too' "$HERE/power-check.sh" verify
no_warnings server

echo "$passed passed, $failed failed"
[ $failed = 0 ]
