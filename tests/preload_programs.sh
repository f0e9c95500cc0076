#!/bin/sh
# Programs that know nothing of us, in a folder that our preload library keeps on a drive: shells, the
# everyday programs for files, archives, git, SQLite, a compiler and what it has made. Each scene of
# tests/preload/scenes is played on the kernel's file system first, and what is said has to be the same.
#
#   tests/preload_programs.sh UNVME [SCENE ...]
#
# UNVME_PRELOAD is the folder of libunvme_preload.so, if not where UNVME finds it. UNVME_PRELOAD_ALL=1 goes on
# after a difference; UNVME_PRELOAD_NATIVE=1 plays each scene on the kernel twice and needs no library.
set -eu

unvme=$(readlink -f "$1")
shift
name=preload_programs
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/preload/place.sh
. "$root/tests/preload/place.sh"
# The source that the scenes copy is one that nobody changes meanwhile.
mkdir "$work/source"
(cd "$root" && cp -r Makefile Cargo.lock docs "$work/source/" && mkdir "$work/source/crates" && cp -r crates/spec "$work/source/crates/")
export SOURCE="$work/source" OUTSIDE="$outside"
allowed=

scenes=$*
[ -n "$scenes" ] || scenes='sh:shell bash:shell bash:coreutils bash:archives sh:exec sh:git sh:sqlite sh:build sh:libraries sh:sanitizers'

# What a scene says: play native|inside SHELL:SCENE FILE.
play() {
    how=$1 shell=${2%%:*} script=${2##*:}
    rm -rf "${outside:?}"/*
    "$how" "$shell" "$root/tests/preload/scenes/$script.sh" >"$3" 2>"$3.errors" </dev/null || printf 'ended with %s\n' "$?" >>"$3"
    # Where the folder is, and numbers of processes, are not the scene's.
    sed "s|$work|WORK|g; s/^[^ ]*: line [0-9]*: *[0-9]* /shell: /" "$3.errors" | sort >>"$3"
    if [ -n "${UNVME_PRELOAD_SHOW-}" ]; then cat "$3"; fi
}

for scene in $scenes; do
    section "$scene, on the kernel"
    native_on
    play native "$scene" "$work/native"
    native_off
    if [ -n "${UNVME_PRELOAD_NATIVE-}" ]; then
        native_on
        play native "$scene" "$work/again"
        native_off
        compare "$scene, again" "$work/native" "$work/again"
        continue
    fi
    for mode in alone shared; do
        section "$scene, $mode"
        slot 0000:02:00.0 2G
        case $mode in
        alone) ours 0000:02:00.0 ;;
        shared) ours 0000:02:00.0 --shared ;;
        esac
        play inside "$scene" "$work/ours"
        was_used "$scene"
        compare "$scene, $mode" "$work/native" "$work/ours"
        check 0000:02:00.0
        "$unvme" device remove 0000:02:00.0 --force >/dev/null
    done
done
finish
