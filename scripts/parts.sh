#!/bin/sh
# Parts of a test, two at a time, each with its output in one piece; what has failed is repeated at the end.
#
#   scripts/parts.sh FOLDER SECONDS < PARTS
#
# A line of PARTS is a name and a command. Outputs are kept in FOLDER; a part that takes longer than SECONDS
# has failed.
set -eu

folder=$1
seconds=$2
rm -rf "$folder"
mkdir -p "$folder"
export folder seconds

# shellcheck disable=SC2016
tr '\n' '\0' | xargs -0 -P 2 -I PART sh -c '
    log=$folder/${1%% *}.log
    started=$(date +%s)
    status=0
    timeout -k 10 "$seconds" sh -c "exec ${1#* }" </dev/null >"$log" 2>&1 || status=$?
    case $status in
    0) ;;
    124) echo "not done after $seconds s" >>"$log" ;;
    *) echo "status $status" >>"$log" ;;
    esac
    [ "$status" -eq 0 ] || : >"${log%.log}.failed"
    { echo "${1%% *}: $(($(date +%s) - started)) s"; cat "$log"; } | sed "s/^/  /"
' part PART

status=0
for failed in "$folder"/*.failed; do
    [ -e "$failed" ] || continue
    printf '\n%s has FAILED:\n' "$(basename "$failed" .failed)"
    tail -n 40 "${failed%.failed}.log"
    status=1
done
exit "$status"
