#!/bin/bash
# test-vm.sh - Linux judges both ends of unvme in a guest: `make test-vm`, and in a short form `make test`.
#
#   test-vm.sh UNVME [PART...]     UNVME is the program to test; without a PART all of parts.sh
#   test-vm.sh -s UNVME            the short form; where no guest can be had, it says SKIPPED and why, and
#                                  succeeds
#
# A part boots one or several guests. Each line "WHAT: ok" or "WHAT: FAILED" of a guest counts, and how the
# guest ends. The last line is "N passed, N failed"; the exit code is not 0 when anything failed. TMPDIR,
# GUEST_CACHE and so on are as for guest.sh.
set -u
HERE=$(dirname "$(readlink -f "$0")")
short=''
if [ "${1:-}" = -s ]; then short=1; shift; fi
unvme=$(readlink -f "${1:?the program to test}") || exit 2
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/test-vm.XXXXXX") || exit 2
# The guest has a /tmp and a /run of its own; the checkout and this folder are in it all the same.
case $unvme in /tmp/* | /run/*) cp "$unvme" "$work/unvme" && unvme=$work/unvme ;; esac
server='' passed=0 failed=0 reported=0
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

# no_warnings NAME: stops the server, which has had nothing to complain about.
no_warnings() {
  stop
  if [ -s "$work/log" ]; then fail "$1, server's log"; sed 's/^/    /' "$work/log"; else pass "$1, server's log"; fi
}

# counted NAME COMMAND...: runs the command, a guest, and counts what it reports.
counted() {
  local name=$1 what verdict status failures=0; shift
  reported=0
  "$@" > "$work/out" 2> "$work/err"; status=$?
  while IFS= read -r what; do
    verdict=${what##*: } what="$name, ${what%: *}" reported=$((reported + 1))
    case $verdict in ok) pass "$what" ;; FAILED) fail "$what"; failures=$((failures + 1)) ;; esac
  done < <(grep -E ': (ok|FAILED)$' "$work/out")
  if [ $status = 0 ]; then pass "$name"; return; fi
  [ $failures -gt 0 ] || fail "$name (exit code $status)"
  sed 's/^/    /' "$work/err"
}

# ours NAME COMMAND [OPTION...]: a guest whose kernel drives the controller at $work/socket; options of
# vfio-user.sh.
ours() {
  local name=$1 command=$2; shift 2
  counted "$name" "$HERE/vfio-user.sh" -d "$work" -c 2 -t 600 "$@" "$work/socket" "$command"
}

# qemus NAME COMMAND OPTION...: a guest with QEMU's controllers, where violations count; options of guest.sh.
qemus() {
  local name=$1 command=$2; shift 2
  counted "$name" "$HERE/guest.sh" run -d "$work" -c 2 -t 600 -V "$@" "$command"
  # Its checks are those of check.sh: without a line of theirs, none has run.
  [ "$reported" -gt 0 ] || fail "$name, no check reported"
}

# interrupted NAME WHAT COMMAND: starts a guest that writes, and kills WHAT, server or guest, when it has
# created the flag.
interrupted() {
  local name=$1 what=$2 guest; shift 2
  "$HERE/vfio-user.sh" -d "$work" -t 180 "$work/socket" "$1" > "$work/out" 2> "$work/err" &
  guest=$!
  for _ in $(seq 1200); do [ -e "$work/flag" ] && break; sleep 0.1; done
  if [ -e "$work/flag" ]; then pass "$name, writing"; else fail "$name, writing"; sed 's/^/    /' "$work/err"; fi
  sleep 2; rm -f "$work/flag"
  if [ "$what" = server ]; then stop -9; else kill_tree $guest; fi
  wait $guest
}

# kill_tree PID: the process and everything below it, QEMU among them.
kill_tree() {
  local child
  # shellcheck disable=SC2013
  for child in $(cat /proc/"$1"/task/*/children 2> /dev/null); do kill_tree "$child"; done
  kill -9 "$1" 2> /dev/null
}

# shellcheck source-path=SCRIPTDIR source=parts.sh
. "$HERE/parts.sh"

"$HERE/guest.sh" prepare 2> "$work/err"; status=$?
if [ $status = 77 ] && [ -n "$short" ]; then echo "SKIPPED: $(tail -1 "$work/err")"; exit 0; fi
if [ $status != 0 ]; then cat "$work/err" >&2; exit $status; fi
tools=$("$HERE/guest.sh" tools 2> "$work/err"); status=$?
if [ $status = 77 ] && [ -n "$short" ]; then echo "SKIPPED: $(tail -1 "$work/err")"; exit 0; fi
if [ $status != 0 ]; then cat "$work/err" >&2; exit $status; fi
"$HERE/guest.sh" about
if [ -n "$short" ]; then set -- "${SHORT_PARTS[@]}"; elif [ $# = 0 ]; then set -- "${PARTS[@]}"; fi
for part; do
  declare -F "part_$part" > /dev/null || { echo "no part $part; there are ${PARTS[*]} ${SHORT_PARTS[*]}" >&2; exit 2; }
  echo "== $part"
  "part_$part"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
