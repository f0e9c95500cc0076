#!/bin/sh
# Builds WiredTiger, the storage engine of MongoDB, from its source package.
#
#   scripts/wiredtiger.sh FOLDER [-O1]
#
# -O1: for tests, which spend more time compiling it than running it. Its status is 3 when the source cannot
# be fetched, and 1 when something else is wrong.
#
# FOLDER/lib has its library, FOLDER/include what a program is compiled with, FOLDER/bin its command wt, its
# benchmark wtperf and its tests of recovery, FOLDER/runners what wtperf runs. What is there in the right
# version is not built again.
#
# By way of the registry that pip is set up for: Debian has one of 2020.
set -eu

VERSION=11.3.1

folder=$1
level=${2-}
if [ "$(cat "$folder/version" 2>/dev/null)" = "$VERSION${level:+ $level}" ]; then
    exit 0
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
log=$folder/build.log

# What may have gone wrong is at the end of the log.
fail() {
    tail -n 40 "$log" >&2
    echo "wiredtiger: $*" >&2
    exit 1
}

: >"$log"
if ! command -v cmake >/dev/null 2>&1 || ! python3 -m pip --version >/dev/null 2>&1; then
    fail "cmake and Python's pip are needed: scripts/setup.sh test installs them"
fi
echo "wiredtiger: building $VERSION"
rm -rf "$folder/version" "$folder/source" "$folder/build" "$folder/download"
# pip would like to know what it depends on, for which the package says what it is built with: nothing else is
# run of it.
python3 -m pip download --quiet --no-deps --no-binary :all: -d "$folder/download" "wiredtiger==$VERSION" >"$log" 2>&1 ||
    { (fail "its source package cannot be fetched") || exit 3; }
mkdir "$folder/source"
tar -x --strip-components=1 -C "$folder/source" -f "$folder/download/wiredtiger-$VERSION.tar.gz"
# Without what a machine may have or not: the same library everywhere. -Wno-error: warnings of compilers that
# its authors have not met would be errors. $ORIGIN is for the linker.
# shellcheck disable=SC2016
cmake -S "$folder/source" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DENABLE_PYTHON=0 -DENABLE_STRICT=0 \
    -DENABLE_STATIC=0 -DENABLE_SHARED=1 -DENABLE_LZ4=0 -DENABLE_SNAPPY=0 -DENABLE_ZLIB=0 -DENABLE_ZSTD=0 \
    -DENABLE_CPPSUITE=0 -DENABLE_MEMKIND=0 -DENABLE_SODIUM=0 -DENABLE_IAA=0 -DENABLE_DEBUG_INFO=0 \
    -DCMAKE_C_FLAGS=-Wno-error ${level:+-DCMAKE_C_FLAGS_RELEASE="$level -DNDEBUG"} -DCMAKE_SKIP_RPATH=1 -DCMAKE_EXE_LINKER_FLAGS='-Wl,-rpath,\$ORIGIN/../lib' \
    >>"$log" 2>&1 || fail "cmake does not know how to build it here"
cmake --build "$folder/build" --parallel "$(nproc)" --target wiredtiger_shared wt wtperf test_random_abort \
    test_timestamp_abort >>"$log" 2>&1 || fail "it cannot be built"

rm -rf "${folder:?}/lib" "${folder:?}/include" "${folder:?}/bin" "${folder:?}/runners"
mkdir "$folder/lib" "$folder/include" "$folder/bin"
cp -P "$folder"/build/libwiredtiger.so* "$folder/lib/"
cp "$folder/build/include/wiredtiger.h" "$folder/include/"
for program in wt wtperf test_random_abort test_timestamp_abort; do
    found=$(find "$folder/build" -type f -name "$program" -perm -u+x | head -n 1)
    [ -n "$found" ] || fail "the build has brought no $program"
    cp "$found" "$folder/bin/"
done
cp -r "$folder/source/bench/wtperf/runners" "$folder/runners"
rm -rf "$folder/source" "$folder/build" "$folder/download"
"$folder/bin/wt" -V >>"$log" 2>&1 || fail "what has been built does not run"
grep -q "$VERSION" "$log" || fail "what has been built is not $VERSION"
rm -f "$log"
echo "$VERSION${level:+ $level}" >"$folder/version"
