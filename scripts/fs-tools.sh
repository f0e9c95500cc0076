#!/bin/sh
# Programs that others have written to try file systems, built from their releases: pjdfstest and fsx.
#
#   scripts/fs-tools.sh FOLDER
#
# They end up in FOLDER/bin. What is there in the right version is not built again.
set -eu

folder=$1
mkdir -p "$folder"
for tool in pjdfstest@0.2.2 fsx@0.3.2; do
    name=${tool%@*}
    if [ -x "$folder/bin/$name" ] && grep -q "\"$name ${tool#*@} " "$folder/.crates.toml" 2>/dev/null; then
        continue
    fi
    echo "fs-tools: building $tool"
    log=$(mktemp)
    if ! CARGO_TARGET_DIR="$folder/build" cargo install --locked --quiet --root "$folder" "$tool" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
done
rm -rf "$folder/build"
