#!/bin/sh
# Programs that others have written to try file systems, built from their releases: pjdfstest and fsx, and
# SQLite's own tests from the source package of the system's SQLite.
#
#   scripts/fs-tools.sh FOLDER
#
# They end up in FOLDER/bin, SQLite's tests in FOLDER/sqlite/test. What is there in the right version is not
# built again.
set -eu

folder=$1
root=$(cd "$(dirname "$0")/.." && pwd)
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

# SQLite's tests are run by a program that has SQLite inside: of the version that the system has.
version=$(sqlite3 --version | cut -d' ' -f1)
if [ "$(cat "$folder/sqlite/version" 2>/dev/null)" != "$version" ] || [ ! -x "$folder/bin/testfixture" ]; then
    echo "fs-tools: building SQLite's testfixture $version"
    rm -rf "$folder/sqlite"
    "$root/scripts/package-source.sh" "$folder/sqlite" sqlite3
    log=$folder/sqlite.log
    if ! (cd "$folder/sqlite" && ./configure --disable-shared --disable-readline CFLAGS=-O0 && make -j"$(nproc)" testfixture) \
        >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        exit 1
    fi
    mv "$folder/sqlite/testfixture" "$folder/bin/"
    # The tests are all that is needed from here on.
    find "$folder/sqlite" -mindepth 1 -maxdepth 1 ! -name test -exec rm -rf {} +
    rm -f "$log"
    echo "$version" >"$folder/sqlite/version"
fi
