# shellcheck shell=bash disable=SC2034
# check.sh - sourced by the checks that run in the guest: a line for each, "NAME: ok" or "NAME: FAILED" with
# the output of what failed on stderr. The script ends with `exit "$failed"`.
failed=0   # read by the script that sources this

# check NAME COMMAND...: runs the command, a function as a rule, in a shell of its own, which stops at the
# first command that fails and names it.
check() {
  local name=$1 status; shift
  (set -ex -o pipefail; "$@") > "/tmp/check.$$" 2>&1
  status=$?
  if [ $status = 0 ]; then echo "$name: ok"; return; fi
  failed=1
  echo "$name: FAILED"
  tail -60 "/tmp/check.$$" | sed 's/^/    /' >&2
}

# refused WORDS COMMAND...: the command fails, and says these words.
refused() {
  local words=$1 out; shift
  if out=$("$@" 2>&1); then echo "not refused: $*"; return 1; fi
  case $out in *"$words"*) ;; *) echo "$*: expected '$words', got: $out"; return 1 ;; esac
}

# until_so SECONDS COMMAND...: the command succeeds in time.
until_so() {
  local - i tries=$(($1 * 10)); shift
  { set +x; } 2> /dev/null
  for ((i = 0; i < tries; i++)); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done
  echo "not so in time: $*"; return 1
}

gone() { ! [ -e "$1" ]; }
block_bytes() { [ "$(blockdev --getss "$1")" = "$2" ]; }
