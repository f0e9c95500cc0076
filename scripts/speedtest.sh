#!/bin/sh
# Builds speedtest1, the benchmark that SQLite's authors measure it with, on the SQLite that is installed.
#
#   scripts/speedtest.sh FOLDER
#
# It ends up in FOLDER/speedtest1, and its source beside it. What is there in the right version is not built
# again.
set -eu

folder=$1
root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sqlite3 --version | cut -d' ' -f1)
if [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ] && [ -x "$folder/speedtest1" ]; then
    exit 0
fi
mkdir -p "$folder"
echo "speedtest: building SQLite's speedtest1 $version"
if ! [ -f "$folder/speedtest1-$version.c" ]; then
    "$root/scripts/package-source.sh" "$folder/source" sqlite3
    mv "$folder/source/test/speedtest1.c" "$folder/speedtest1-$version.c"
    rm -rf "$folder/source"
fi
# Warnings about it are its authors' business.
cc -O2 -w -o "$folder/speedtest1" "$folder/speedtest1-$version.c" -lsqlite3
echo "$version" >"$folder/version"
