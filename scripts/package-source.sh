#!/bin/sh
# Fetches the source of a Debian package, and unpacks it.
#
#   scripts/package-source.sh FOLDER PACKAGE[=VERSION]
#
# PACKAGE is the name of a source package. It comes from where the system has its packages, and nothing of
# the system is changed: apt works with lists and a cache of its own, in which sources are asked for where
# packages are. FOLDER is made anew.
set -eu

folder=$1
source=$2
command -v apt-get >/dev/null 2>&1 || {
    echo "package-source: the source of $source is needed, and there is no apt-get here" >&2
    exit 1
}
apt=$folder.apt
rm -rf "$apt" "$folder"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts" "$apt/download" "$folder"
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if [ -f "$list" ]; then
        name=$(basename "$list")
        [ "$name" != sources.list ] || name=main.list
        sed -e 's/^Types:.*/Types: deb-src/' -e 's/^deb /deb-src /' "$list" >"$apt/parts/$name"
    fi
done
apt=$(cd "$apt" && pwd)
log=$apt/log
set -- -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts" -o "Dir::State::Lists=$apt/lists" \
    -o "Dir::Cache=$apt/cache" -o Debug::NoLocking=true -o APT::Sandbox::User=
# A list that cannot be had may be of another repository.
apt-get "$@" update >"$log" 2>&1 || true
(cd "$apt/download" && apt-get "$@" source --download-only --tar-only "$source") >>"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    echo "package-source: the source of $source could not be fetched" >&2
    exit 1
}
# Of several archives the one that its authors have made.
for archive in "$apt"/download/*.orig.tar.* "$apt"/download/*.tar.*; do
    [ ! -f "$archive" ] || break
done
tar -x --strip-components=1 -C "$folder" -f "$archive"
rm -rf "$apt"
