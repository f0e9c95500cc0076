#!/bin/sh
# Tests that others have written, in a folder that our preload library keeps on a drive: Python's own for
# files, fio that reads what it has written, fsx, pjdfstest, dbench; with -l also SQLite's own, more of
# Python's, and all of them for longer. Where the kernel's file system does not pass either, the lists are
# compared.
#
#   tests/preload_suites.sh [-l] UNVME TOOLS [PART ...]
#
# TOOLS is what scripts/fs-tools.sh has made. UNVME_PRELOAD is the folder of libunvme_preload.so, if not
# where UNVME finds it; UNVME_PRELOAD_ALL=1 goes on after a difference. A PART is python, fio, fsx,
# pjdfstest, dbench or sqlite. UNVME_PRELOAD_NATIVE=1 runs all of it on the kernel, and needs no library.
set -eu

long=
if [ "$1" = -l ]; then
    long=1
    shift
fi
unvme=$(readlink -f "$1")
tools=$(readlink -f "$2")
shift 2
name=preload_suites
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/preload/place.sh
. "$root/tests/preload/place.sh"
allowed=
parts=$*
[ -n "$parts" ] || parts="python fio fsx pjdfstest dbench ${long:+sqlite}"
slot=0000:02:00.0

# A fresh folder, by `mode`: native, alone or shared.
begin() {
    case $mode in
    native) native_on ;;
    *)
        slot "$slot" 4G
        ours "$slot"
        [ "$mode" = alone ] || ours "$slot" --shared
        ;;
    esac
}

end() {
    case $mode in
    native) native_off ;;
    *)
        check "$slot"
        "$unvme" device remove "$slot" --force >/dev/null
        ;;
    esac
}

# Runs a command in the folder.
there() {
    case $mode in
    native) native "$@" ;;
    *) inside "$@" ;;
    esac
}

good() {
    what=$1
    shift
    steps=$((steps + 1))
    if there "$@" >"$work/output" 2>&1; then
        [ "$mode" = native ] || was_used "$what"
        return 0
    fi
    differs "$what, $mode: failed: $*"
}

# What Python's tests say, one line for each: test_python TEST FILE.
test_python() {
    there /usr/bin/python3 -m test --tempdir="$top" -v "$1" >"$work/python" 2>&1 </dev/null || true
    # What a test prints may come between its name and its result.
    grep -oE '^test[A-Za-z0-9_]* \([A-Za-z0-9_.]*\)|\.\.\. (ok|FAIL|ERROR|skipped.*|expected failure)$|^(ok|FAIL|ERROR)$|^(FAIL|ERROR): .*' "$work/python" |
        awk '/^test/ { name = $0; next } /^(FAIL|ERROR): / { print; next } { sub(/^\.\.\. /, ""); sub(/test_[0-9]+_tmp/, "test_N_tmp"); print name ": " $0; name = "" }' | sort >"$2"
    grep -E '^Ran [0-9]+ tests|^Result: |no tests ran' "$work/python" | sed 's/ in .*//' >>"$2" || true
    if [ -n "${UNVME_PRELOAD_KEEP-}" ]; then cp "$work/python" "$UNVME_PRELOAD_KEEP/$mode.$1"; fi
}

part_python() {
    tests='test_os test_mmap test_fcntl test_tempfile test_shutil test_glob test_fileio test_file test_posix test_posixpath
        test_stat test_fileinput test_dbm_dumb'
    [ -z "$long" ] || tests="$tests test_io test_tarfile test_zipfile test_pathlib test_mailbox test_bufio test_gzip test_bz2 test_shelve
        test_logging test_subprocess test_multiprocessing_fork test_selectors"
    [ -z "${PYTHON_TESTS-}" ] || tests=$PYTHON_TESTS
    for mode in native alone ${long:+shared}; do
        [ "$mode" = native ] || [ -z "${UNVME_PRELOAD_NATIVE-}" ] || continue
        begin
        for test in $tests; do
            test_python "$test" "$work/$mode.$test"
            [ "$mode" = native ] || compare "Python's $test, $mode" "$work/native.$test" "$work/$mode.$test"
        done
        [ "$mode" = native ] || was_used python
        end
    done
}

modes() {
    if [ -n "${UNVME_PRELOAD_NATIVE-}" ]; then echo native; else echo "${MODES-alone shared}"; fi
}

# What was written is read again; in processes and in threads.
part_fio() {
    for mode in $(modes); do
        begin
        for engine in psync sync pvsync2 mmap posixaio; do
            for thread in 0 1; do
                good "fio $engine" fio --name=v --directory="$top" --size="${long:+5}6m" --bsrange=1k-64k --blockalign=4k \
                    --rw=randwrite --ioengine="$engine" --bs_unaligned=0 --bs=4k --verify=crc32c --verify_fatal=1 --do_verify=1 \
                    --verify_state_save=0 --numjobs=2 --thread="$thread" --end_fsync=1 --invalidate=0
            done
        done
        good 'fio, direct' fio --name=d --filename="$top/direct" --size=8m --bs=4k --rw=randrw --direct=1 --ioengine=psync --verify=crc32c \
            --verify_fatal=1 --do_verify=1 --verify_state_save=0
        # Refused, so that a program can take another way; it does not wait, and nothing is written past us.
        if [ "$mode" != native ]; then
            for engine in libaio io_uring; do
                steps=$((steps + 1))
                if seconds=60 there fio --name=r --filename="$top/refused" --size=1m --rw=write --ioengine="$engine" --direct=1 \
                    >"$work/output" 2>&1; then fail "fio, $engine: it was not refused"; fi
                grep -qiE 'not implemented|ENOSYS|not support' "$work/output" || fail "fio, $engine: no reason is given"
            done
        fi
        end
    done
}

part_fsx() {
    for mode in $(modes); do
        begin
        for seed in $(seq 1 "${long:+1}2"); do
            good "fsx, seed $seed" "$tools/bin/fsx" -N "${long:+2}5000" -S "$seed" "$top/fsx"
        done
        end
    done
}

# What POSIX says, in the name of several users.
part_pjdfstest() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "$name: SKIPPED: pjdfstest needs root"
        return
    fi
    for mode in $(modes); do
        begin
        there mkdir pjd
        steps=$((steps + 1))
        there "$tools/bin/pjdfstest" -c "$root/tests/pjdfstest.toml" -p "$top/pjd" >"$work/output" 2>&1 || true
        # A kernel's file system alone can say that a program runs, and be mounted upon.
        kernels='open::etxtbsy rmdir::ebusy truncate::etxtbsy '
        failed=$(sed -n 's/^\([a-z_0-9:]*\)  *FAILED$/\1/p' "$work/output" | sort -u | tr '\n' ' ')
        case $mode:$failed in
        native: | alone:"$kernels" | shared:"$kernels") ;;
        *) differs "pjdfstest, $mode: failed: $failed" ;;
        esac
        grep -qE '^Summary: [03] failed, [0-9]+ skipped, 3[78][0-9] passed' "$work/output" || differs "pjdfstest, $mode"
        [ "$mode" = native ] || was_used pjdfstest
        end
    done
}

part_dbench() {
    loadfile=/usr/share/dbench/client.txt
    if ! command -v dbench >/dev/null || [ ! -f "$loadfile" ]; then
        echo "$name: SKIPPED: there is no dbench"
        return
    fi
    for mode in $(modes); do
        begin
        good dbench dbench -c "$loadfile" -D "$top" -t "${long:+3}2" 3
        end
    done
}

# SQLite's own tests: of locks, and of what a crash at any write leaves. Its journals, its own way of dying.
part_sqlite() {
    tests='lock lock2 lock3 lock4 lock5 lock6 lock7 crash crash2 crash3 crash4 crash5 crash6 crash7 crash8 wal wal3 wal5 walcrash
        walcrash2 walcrash3 walcrash4 walpersist waloverwrite walshared savepoint savepoint2 pager2 io ioerr journal1 journal2 journal3
        mmap1 mmap2 mmap3 exclusive exclusive2 shared_err bigfile backup atomic superlock tempdb incrvacuum'
    for mode in $(modes); do
        begin
        for test in $tests; do
            good "SQLite's test $test" "$tools/bin/testfixture" "$tools/sqlite/test/$test.test"
            grep -qE '^0 errors out of [0-9]+ tests' "$work/output" || differs "SQLite's test $test, $mode"
        done
        end
    done
}

for part in $parts; do
    section "$part"
    "part_$part"
done
finish
