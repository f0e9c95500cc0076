#!/bin/sh
# Builds RocksDB's file system for unvme against the RocksDB that is installed: `make rocksdb`.
#
#   scripts/rocksdb.sh FOLDER ARCHIVE    FOLDER/librocksdb_unvme.so, with libunvme.a from ARCHIVE inside, and
#                                        librocksdb_unvme_flags.so, the flags of the uNVMe SDK's db_bench;
#                                        libkv_rocksdb.so, RocksDB's interface on pairs, for version 7.8, and
#                                        libkv_rocksdb_flags.so, the flag of the SDK's kv_db_bench
#
# For another RocksDB ROCKSDB_CFLAGS says where its headers are and what it is compiled with, and ROCKSDB_LIBS
# what is linked: its headers and its library belong together.
set -eu

folder=$1
archive=$2
root=$(cd "$(dirname "$0")/.." && pwd)
CXX=${CXX:-c++}
ROCKSDB_CFLAGS=${ROCKSDB_CFLAGS-}
ROCKSDB_LIBS=${ROCKSDB_LIBS--lrocksdb}
source=$root/plugins/rocksdb

fail() {
    echo "rocksdb: $*" >&2
    exit 1
}

# What a header of RocksDB's says.
version_of() {
    # shellcheck disable=SC2086
    echo '#include <rocksdb/version.h>
version ROCKSDB_MAJOR ROCKSDB_MINOR ROCKSDB_PATCH' | $CXX $ROCKSDB_CFLAGS -E -P -x c++ - 2>/dev/null |
        sed -n 's/^version \([0-9]*\) \([0-9]*\) \([0-9]*\)$/\1.\2.\3/p'
}

version=$(version_of)
[ -n "$version" ] || fail "there are no headers of RocksDB; install them (sudo apt-get install librocksdb-dev)," \
    "or say where they are: ROCKSDB_CFLAGS=-I/path/to/rocksdb/include"
# Its headers are C++20 from version 10 on.
standard=c++17
[ "${version%%.*}" -lt 10 ] || standard=c++20
mkdir -p "$folder"

# Compiles a library: library NAME OPTION ... SOURCE ..., with all that it needs behind the sources.
library() {
    name=$1
    shift
    # shellcheck disable=SC2086
    $CXX -std=$standard -O2 -g -fPIC -shared ${CXXFLAGS-} -Wall -Wextra -Werror $ROCKSDB_CFLAGS \
        -I"$root/crates/capi/include" -o "$folder/$name.new" "$@" -Wl,-soname,"$name" -Wl,-z,relro -Wl,-z,now -ldl
    mv "$folder/$name.new" "$folder/$name"
    echo "rocksdb: $folder/$name, for RocksDB $version"
}

# The same, with the C library inside.
with_c_library() {
    name=$1
    shift
    # shellcheck disable=SC2086
    library "$name" "$@" "$archive" -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,--gc-sections $ROCKSDB_LIBS -lgcc_s \
        -lutil -lrt -lpthread -lm
}

# Sources by their names: sources NAME ...
sources() {
    list=
    for name in "$@"; do
        list="$list $source/$name.cc"
    done
}

has_gflags=
if echo '#include <gflags/gflags.h>' | $CXX -fsyntax-only -x c++ - 2>/dev/null; then
    has_gflags=yes
else
    echo "rocksdb: no flags for db_bench: there are no headers of gflags (sudo apt-get install libgflags-dev)"
fi

# A plugin of RocksDB's own tree is compiled with these warnings as errors, too.
sources text uri mount guide files log fs_unvme ldb_tool
# shellcheck disable=SC2086
with_c_library librocksdb_unvme.so -Wshadow -Woverloaded-virtual -Wnon-virtual-dtor $list
if [ -n "$has_gflags" ]; then
    # shellcheck disable=SC2016
    library librocksdb_unvme_flags.so "$source"/tool_flags.cc -Wl,-rpath,'$ORIGIN' "$folder/librocksdb_unvme.so" -lgflags
fi

# A database of our own has the interface of one version.
case $version in
7.8.*)
    sources text kv_place kv_device kv_index kv_pairs kv_iterator kv_writes kv_db kv_open
    # shellcheck disable=SC2086
    with_c_library libkv_rocksdb.so -fvisibility=hidden $list
    [ -z "$has_gflags" ] || library libkv_rocksdb_flags.so "$source"/kv_flags.cc -lgflags
    ;;
*) echo "rocksdb: no libkv_rocksdb.so: RocksDB's interface on pairs is that of version 7.8" ;;
esac
