#!/bin/sh
# Builds tests of RocksDB's own, of the version that is installed, against its library.
#
#   scripts/rocksdb-tests.sh FOLDER TEST...    FOLDER/TEST, from db/TEST.cc and the like; or db_stress, which
#                                              FOLDER/source/tools/db_crashtest.py runs and kills
#
# The source comes from where the system has its packages. What is built already stays.
set -eu

folder=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
CXX=${CXX:-c++}
# As Debian's library is compiled: assertions change what is in its structures.
FLAGS='-std=gnu++17 -O1 -w -DGFLAGS=1 -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX
    -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT -DROCKSDB_SCHED_GETCPU_PRESENT
    -DROCKSDB_MALLOC_USABLE_SIZE -DROCKSDB_PTHREAD_ADAPTIVE_MUTEX -DSNAPPY -DZLIB -DBZIP2 -DLZ4 -DZSTD'

fail() {
    echo "rocksdb-tests: $*" >&2
    exit 1
}

command -v dpkg-query >/dev/null 2>&1 || fail "the source of RocksDB is found by Debian's packages, which are not here"
package=$(dpkg-query -W -f '${source:Package}=${source:Version}' librocksdb-dev 2>/dev/null) ||
    fail 'librocksdb-dev is not installed'
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
source=$folder/source
[ -f "$folder/$package" ] || {
    "$root/scripts/package-source.sh" "$source" "$package"
    rm -f "$folder"/*.o
    : >"$folder/$package"
}
gtest=$(cd "$source/third-party" && echo gtest-*/fused-src)

# Compiles a source of RocksDB's: object SOURCE
object() {
    name=$folder/$(basename "$1" .cc).o
    if [ ! -f "$name" ]; then
        # shellcheck disable=SC2086
        (cd "$source" && $CXX $FLAGS -I. -Iinclude -I"third-party/$gtest" -c "$1" -o "$name.new")
        mv "$name.new" "$name"
    fi
    objects="$objects $name"
}

for test in "$@"; do
    [ ! -x "$folder/$test" ] || continue
    objects=
    if [ "$test" = db_stress ]; then
        # As it is in some versions, db_stress expects to find again what could not be written.
        sed -i 's/^ *shared->[A-Za-z]*(rand_column_family, rand_key, .*false .. pending ..);/if (s.ok()) &/' \
            "$source/db_stress_tool/no_batched_ops_stress.cc"
        for part in "$source"/db_stress_tool/*.cc; do
            object "db_stress_tool/$(basename "$part")"
        done
    else
        object "third-party/$gtest/gtest/gtest-all.cc"
        object test_util/testharness.cc
        [ "$test" = env_basic_test ] || for helper in db/db_test_util.cc table/mock_table.cc; do
            object "$helper"
        done
        found=$(cd "$source" && find . -name "$test.cc" -not -path './java/*' | head -n 1)
        [ -n "$found" ] || fail "RocksDB has no test $test"
        object "$found"
    fi
    # shellcheck disable=SC2086
    $CXX -o "$folder/$test" $objects -lrocksdb -lgflags -lzstd -lpthread
    echo "rocksdb-tests: $folder/$test"
done
