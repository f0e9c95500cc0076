#!/usr/bin/env bash
# A command, and at the end what has failed in it, in few lines: who sees the end of a long output alone, as
# in continuous integration, sees which test it was. The status is that of the command.
#
#   scripts/repeat-failures.sh LOG COMMAND...
#
# The whole output is kept in LOG. What ends it early (SIGTERM) has what had failed until then repeated, too.
set -uo pipefail

log=$1
shift
mkdir -p "$(dirname "$log")"

# Lines at most, and bytes of each.
LINES_MAX=24
BYTES_MAX=240

failures() {
    awk '
        function note(text) { notes[notes_count++] = section ": " text }
        function tell(  i) {
            for (i = 0; i < notes_count; i++) print notes[i]
            for (i = said_count > 3 ? said_count - 3 : 0; i < said_count; i++) print section ": " said[i % 3]
            notes_count = said_count = 0
        }
        # What looks like an error in a section that make says nothing of was expected.
        /^==> / { section = substr($0, 5); name = ""; notes_count = said_count = 0; next }
        # Tests in Rust: the name, the place and the message.
        /^---- .* stdout ----$/ { name = substr($0, 6, length($0) - 17); next }
        name != "" && / panicked at / {
            place = $0
            sub(/^.* panicked at /, "", place)
            if ((getline message) <= 0) message = ""
            note(name ": " place " " message)
            name = ""
            next
        }
        /^error: (test failed|[0-9]+ targets? failed|[0-9]+ doctests? failed)/ || /^(note|make): / { next }
        /^error(\[E[0-9]+\])?: / || / has FAILED:$/ { note($0); next }
        # Tests by a shell: the last lines that begin with the name of a script.
        /^ *(tests\/)?[a-z_-]+(\.sh)?: / { said[said_count++ % 3] = $0; next }
        /^make(\[[0-9]+\])?: \*\*\* / { tell(); print }
        # The command was ended in the middle of a section.
        END { tell() }
    ' "$log" | cut -b "-$BYTES_MAX" | awk '!seen[$0]++' | tail -n "$LINES_MAX"
}

end() {
    local status=$1
    [ "$status" -eq 0 ] || { printf '\nWhat has failed, of %s:\n' "$log"; failures; }
    exit "$status"
}

"$@" > >(tee "$log") 2>&1 &
command=$!
trap 'kill "$command" 2>/dev/null; end 143' TERM INT
status=0
wait "$command" || status=$?
# The last lines are in the log when tee has ended.
wait
end "$status"
