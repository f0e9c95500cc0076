# shellcheck shell=bash
# Sourced by the capture scripts inside the guest. The working folder is shared with capture.py.

# ask WORDS...: lets capture.py read the queues now. The file answer then holds the tail of the admin queue.
ask() {
  local i=0
  rm -f answer
  echo "$*" > ask.new
  mv ask.new ask
  while [ ! -e answer ] && [ $i -lt 600 ]; do
    sleep 0.03
    i=$((i + 1))
  done
}

# vector NAME QID OPCODE CDW10 CDW12 COMMAND...: runs the command and names the entry it left on a queue (- =
# any).
vector() {
  local filter=("${@:1:5}")
  shift 5
  "$@" > last 2>&1 || { case ${filter[0]} in error*) ;; *) echo "$*: failed"; cat last ;; esac; } >&2
  ask "${filter[@]}"
}

# response FILE COMMAND...: keeps what the command prints.
response() {
  local file=$1
  shift
  "$@" > "out/$file" 2> last || { echo "$*: failed"; cat last; } >&2
}

# node NSID: waits for the namespace's block device and prints it. Nodes appear asynchronously and are
# numbered in the order of discovery, so nvme0n1 may be NSID 2; and writing to a missing one would create a
# plain file.
node() {
  local i=0 f
  while [ $i -lt 1200 ]; do
    for f in /sys/block/nvme0n*/nsid; do
      [ "$(cat "$f" 2> /dev/null)" = "$1" ] && f=${f%/nsid} && [ -b "/dev/${f##*/}" ] && echo "/dev/${f##*/}" && return
    done
    sleep 0.05
    i=$((i + 1))
  done
  echo "no namespace $1" >&2
  kill $$
}
