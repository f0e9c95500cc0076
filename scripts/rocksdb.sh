#!/bin/sh
# Builds RocksDB's file system for unvme against the RocksDB that is installed: `make rocksdb`.
#
#   scripts/rocksdb.sh FOLDER ARCHIVE    FOLDER/librocksdb_unvme.so, with libunvme.a from ARCHIVE inside, and
#                                        librocksdb_unvme_flags.so, the flags of the uNVMe SDK's db_bench
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

# shellcheck disable=SC2086
$CXX -std=$standard -O2 -g -fPIC -shared ${CXXFLAGS-} -Wall -Wextra -Werror $ROCKSDB_CFLAGS \
    -I"$root/crates/capi/include" -o "$folder/librocksdb_unvme.so.new" "$source"/uri.cc "$source"/mount.cc \
    "$source"/guide.cc "$source"/files.cc "$source"/fs_unvme.cc "$archive" -Wl,-soname,librocksdb_unvme.so \
    -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--gc-sections $ROCKSDB_LIBS -lgcc_s \
    -lutil -lrt -lpthread -lm -ldl
mv "$folder/librocksdb_unvme.so.new" "$folder/librocksdb_unvme.so"
echo "rocksdb: $folder/librocksdb_unvme.so, for RocksDB $version"

if echo '#include <gflags/gflags.h>' | $CXX -fsyntax-only -x c++ - 2>/dev/null; then
    # shellcheck disable=SC2016,SC2086
    $CXX -std=$standard -O2 -g -fPIC -shared ${CXXFLAGS-} -Wall -Wextra -Werror \
        -o "$folder/librocksdb_unvme_flags.so.new" "$source"/tool_flags.cc \
        -Wl,-soname,librocksdb_unvme_flags.so -Wl,-rpath,'$ORIGIN' -Wl,-z,relro -Wl,-z,now \
        "$folder/librocksdb_unvme.so" -lgflags -ldl
    mv "$folder/librocksdb_unvme_flags.so.new" "$folder/librocksdb_unvme_flags.so"
else
    echo "rocksdb: no flags for db_bench: there are no headers of gflags (sudo apt-get install libgflags-dev)"
fi
