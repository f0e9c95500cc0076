#!/bin/sh
# Finds, and where it may installs, what a goal of the Makefile needs. Silent when nothing is missing.
#
#   scripts/setup.sh demo          Rust, a C linker, OpenSSL's library and pkg-config, which finds it
#   scripts/setup.sh bench         ... and RocksDB's library and programs, a C++ compiler, fio, and what
#                                  WiredTiger and SQLite's benchmark are built with
#   scripts/setup.sh ycsb          ... and a JDK, Maven, and WiredTiger for Java
#   scripts/setup.sh lint          ... and rustfmt, clippy and git
#   scripts/setup.sh fuzz          as demo, and a C++ compiler
#   scripts/setup.sh test          all but ycsb's, valgrind, clang, the openssl program, databases
#
# As root it installs missing Debian packages; as anybody else it prints the command that does.
set -eu

RUST_MIN_MINOR=89 # As rust-version in Cargo.toml: 1.89.

goal=${1:-}
case $goal in
demo | bench | ycsb | lint | fuzz | test) ;;
*)
    echo "usage: $0 demo|bench|ycsb|lint|fuzz|test" >&2
    exit 2
    ;;
esac

fail() {
    echo "setup: $*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# Whether the compiler "$1" can link a program in the language "$2"; one without a C library cannot. The
# output goes to a real file: a linker that runs as root may replace /dev/null.
links() {
    have "$1" || return 1
    output=$(mktemp)
    result=0
    echo 'int main(void) { return 0; }' | "$1" -x "$2" -o "$output" - >/dev/null 2>&1 || result=1
    rm -f "$output"
    return "$result"
}

missing_packages() {
    links cc c || printf ' gcc libc6-dev'
    # TLS: the unvme program has it, so whatever builds that needs the library. pkg-config also finds our C
    # library for its tests.
    have pkg-config || printf ' pkgconf'
    echo '#include <openssl/ssl.h>' | cc -fsyntax-only -x c - 2>/dev/null || printf ' libssl-dev'
    case $goal in
    fuzz) links g++ c++ || printf ' g++' ;;
    esac
    case $goal in
    lint | test) have git || printf ' git' ;;
    esac
    if [ "$goal" = test ]; then
        # The other side in the tests of TLS.
        have openssl || printf ' openssl'
        # What the C library's tests are run with. Without libc6-dbg valgrind does not know Debian's dynamic
        # linker.
        have valgrind || printf ' valgrind libc6-dbg'
        # The second compiler that its headers are tried with.
        have clang++ || printf ' clang'
        # Programs find the C library by it, too.
        have cmake || printf ' cmake'
        # What is run on a mounted file system.
        have sqlite3 || printf ' sqlite3'
        # What programs ask of the kernel is seen, and what archives keep is set.
        have strace || printf ' strace'
        have setfattr || printf ' attr'
        have rsync || printf ' rsync'
        have cpio || printf ' cpio'
        have patch || printf ' patch'
        # Programs and tests that are run on our file system without knowing it.
        have dbench || printf ' dbench'
        if ! /usr/bin/python3 -c 'import test.test_os' 2>/dev/null; then
            python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3)
            printf ' libpython%s-testsuite' "$python"
        fi
        # What is run on our file system.
        have redis-server || printf ' redis-server'
        [ -n "$(find /usr/lib/postgresql -name initdb 2>/dev/null)" ] || printf ' postgresql postgresql-contrib'
        have mariadbd || printf ' mariadb-server'
        have mdb_load || printf ' lmdb-utils'
        have fossil || printf ' fossil'
        # SQLite's own tests are written in Tcl.
        [ -f /usr/include/tcl8.6/tcl.h ] || [ -f /usr/include/tcl.h ] || printf ' tcl-dev'
        # RocksDB's script that kills it needs more than the smallest one.
        python3 -c 'import argparse, shutil' 2>/dev/null || printf ' python3'
        echo '#include <sys/acl.h>' | cc -fsyntax-only -x c - 2>/dev/null || printf ' libacl1-dev'
    fi
    # fio drives our devices; the key-value benchmarks compare with RocksDB, those of files with ext4.
    case $goal in
    bench | ycsb | test)
        have fio || printf ' fio'
        have mkfs.ext4 || [ -x /sbin/mkfs.ext4 ] || printf ' e2fsprogs'
        echo '#include <rocksdb/c.h>' | cc -fsyntax-only -x c - 2>/dev/null || printf ' librocksdb-dev'
        # Its programs run on our file system.
        have db_bench || printf ' rocksdb-tools'
        echo '#include <gflags/gflags.h>' | c++ -fsyntax-only -x c++ - 2>/dev/null || printf ' libgflags-dev'
        links g++ c++ || printf ' g++'
        # SQLite's benchmark, and WiredTiger, by way of pip. Programs find the C library by cmake, too.
        have sqlite3 || printf ' sqlite3'
        echo '#include <sqlite3.h>' | cc -fsyntax-only -x c - 2>/dev/null || printf ' libsqlite3-dev'
        have cmake || printf ' cmake'
        python3 -m pip --version >/dev/null 2>&1 || printf ' python3-pip'
        ;;
    esac
    if [ "$goal" = ycsb ]; then
        have javac || printf ' default-jdk-headless'
        have mvn || printf ' maven'
        [ -f /usr/share/java/wiredtiger.jar ] || printf ' libwiredtiger-java'
        [ -f /usr/lib/libwiredtiger_java.so.0 ] || printf ' libwiredtiger0'
    fi
}

install_packages() {
    if ! have apt-get; then
        fail "missing:$1 (named as in Debian); install what your system calls them, then run this again"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: missing:$1" >&2
        echo "setup: install with" >&2
        echo "    sudo apt-get update && sudo apt-get install --no-install-recommends$1" >&2
        exit 1
    fi
    echo "setup: installing$1"
    export DEBIAN_FRONTEND=noninteractive
    # Databases are for tests that start their own.
    export RUNLEVEL=1
    log=$(mktemp)
    # The names are meant to be split into words.
    # shellcheck disable=SC2086
    if ! { apt-get update && apt-get install -y --no-install-recommends $1; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "apt-get could not install$1"
    fi
    rm -f "$log"
}

check_rust() {
    if ! have cargo || ! have rustc; then
        fail "Rust is missing: install it with rustup (https://rustup.rs), open a new shell, then run this again"
    fi
    version=$(rustc --version) || fail "rustc does not run; try: rustup default stable"
    number=${version#rustc }
    number=${number%% *}
    major=${number%%.*}
    minor=${number#*.}
    minor=${minor%%.*}
    if [ "$major" -eq 1 ] && [ "$minor" -lt "$RUST_MIN_MINOR" ]; then
        fail "Rust $number is too old, 1.$RUST_MIN_MINOR or newer is needed: rustup update stable"
    fi
}

check_component() {
    if cargo "$1" --version >/dev/null 2>&1; then
        return
    fi
    have rustup || fail "cargo $1 is missing: install the package of your Rust distribution that brings it"
    echo "setup: adding the Rust component $2"
    rustup component add "$2" || fail "rustup could not add $2"
}

packages=$(missing_packages)
if [ -n "$packages" ]; then
    install_packages "$packages"
    packages=$(missing_packages)
    [ -z "$packages" ] || fail "still missing after the installation:$packages"
fi
check_rust
case $goal in
lint | test)
    check_component fmt rustfmt
    check_component clippy clippy
    ;;
esac
