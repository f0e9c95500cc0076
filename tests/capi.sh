#!/bin/sh
# Builds the C library, installs it in a folder of its own, and compiles and runs against it what C programs
# would be: the examples, and the tests in crates/capi/tests/c. Shared and static, under valgrind and with the
# address sanitizer.
#
#   tests/capi.sh [folder for what is built, default target/capi-test]
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
work=${1:-$target/capi-test}
stage=$work/stage
CC=${CC:-cc}
CXX=${CXX:-c++}
LOCKED=${LOCKED---locked}

rm -rf "$work"
mkdir -p "$work/shared" "$work/static" "$work/asan"

section() {
    printf 'capi: %s\n' "$*"
}

# Runs a program quietly; what it printed is shown when it fails.
run() {
    log=$work/output.log
    result=0
    timeout "$limit" "$@" >"$log" 2>&1 || result=$?
    if [ "$result" -ne 0 ]; then
        tail -n 60 "$log" >&2
        echo "capi: failed with $result: $*" >&2
        exit 1
    fi
}

section "install into $stage"
# A build takes as long as it takes; a program that takes longer than this hangs.
limit=0
run make --no-print-directory -C crates/capi install PROFILE=dev PREFIX="$stage" LOCKED="$LOCKED"
limit=1800
cargo xtask capi "$stage/lib/libunvme.so"
# The program that serves, with the features that all packages and their tests together ask for: after
# `cargo test --workspace` it is there. Libraries of others are not looked for where ours is, which would
# build all of it anew.
cargo test --quiet $LOCKED --workspace --test words --no-run
export PKG_CONFIG_PATH="$stage/lib/pkgconfig"
[ "$(pkg-config --modversion unvme)" = "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)" ]

strict='-Wall -Wextra -Werror -g'
cflags=$(pkg-config --cflags unvme-compat)
shared_libs="$(pkg-config --libs unvme) -Wl,-rpath,$stage/lib -lpthread -lm"
# The archive by its name: -lunvme would find the shared library first.
static_libs="$stage/lib/libunvme.a $(pkg-config --libs --static unvme | sed 's/-lunvme//')"

# A compiler takes a source in each of some languages: parses <compiler> <language> <source> <standard> ...
parses() {
    compiler=$1 language=$2 source=$3
    shift 3
    for std in "$@"; do
        # shellcheck disable=SC2086
        $compiler -std=$std $strict $cflags -fsyntax-only -x "$language" "$source"
    done
}

# With and without the extensions of GNU; C23 by the name that compilers of today and of before have for it.
c_standards='c99 c11 c17 c2x gnu99 gnu11 gnu17 gnu2x'
cxx_standards='c++17 c++20 gnu++17 gnu++20'

section 'headers by themselves, examples, and tables of functions, in the languages they are used from'
header_only=$work/header
for header in kv_types.h kv_apis.h kv_api.h kvnvme.h unvme.h unvme_fs.h kvutil.h latency_stat.h EagleHashIP.h kv_trace.h \
    kvradix.h kvslab.h kvcache.h spdk/env.h; do
    name=$header_only-$(basename "$header" .h).c
    printf '#include "%s"\nint main(void) { return 0; }\n' "$header" >"$name"
done
for source in "$header_only"-*.c crates/capi/tests/c/table.c examples/*.c; do
    for compiler in "$CC" clang; do
        # shellcheck disable=SC2086
        parses "$compiler" c "$source" $c_standards
    done
    for compiler in "$CXX" clang++; do
        # shellcheck disable=SC2086
        parses "$compiler" c++ "$source" $cxx_standards
    done
done

# compile <folder> <name> <library flags> <source> ...
compile() {
    folder=$1 name=$2 libs=$3
    shift 3
    # -fno-common: a variable that a header defines would be there twice.
    # shellcheck disable=SC2086
    $CC -std=gnu11 -D_GNU_SOURCE -fno-common $strict $cflags "$@" -o "$work/$folder/$name" $libs
}

examples=
for source in examples/*.c; do
    name=$(basename "$source" .c)
    examples="$examples $name"
done
tests='layout negative lba defects iterate simple_config driver compat own queue io placement faults removal descriptor fs'

sources_of() {
    case $1 in
    compat) echo crates/capi/tests/c/compat.c crates/capi/tests/c/overriding.c ;;
    *) echo "crates/capi/tests/c/$1.c" ;;
    esac
}

compile_all() {
    for name in $examples; do
        compile "$1" "example-$name" "$2" "examples/$name.c"
    done
    for name in $tests; do
        # shellcheck disable=SC2046
        compile "$1" "$name" "$2" $(sources_of "$name")
    done
}

run_examples() {
    for name in $examples; do
        run "$@" "$work/$folder/example-$name"
    done
    # What an example says when there is no such device.
    if "$work/$folder/example-hello_kv" 0000:ff:1f.7 >"$work/output.log" 2>&1; then
        echo 'capi: hello_kv succeeded without a device' >&2
        exit 1
    fi
}

run_tests() {
    run "$work/$folder/layout"
    for cache in no-cache cache; do
        run "$@" "$work/$folder/negative" $cache
        run "$@" "$work/$folder/lba" $cache
    done
    for kind in sync async; do
        run "$@" "$work/$folder/iterate" $kind "$keys"
        run "$@" "$work/$folder/driver" $kind
    done
    run "$@" "$work/$folder/compat"
    run "$@" "$work/$folder/own"
    run "$@" "$work/$folder/queue"
    run "$@" "$work/$folder/io"
    run "$@" "$work/$folder/placement"
    run "$@" "$work/$folder/faults"
    run "$@" "$work/$folder/descriptor" mem:block:64M polled
}

section 'shared library'
compile_all shared "$shared_libs"
folder=shared keys=4000
run_examples
run_tests
run "$work/shared/defects"
run "$work/shared/simple_config" 200

if command -v cmake >/dev/null; then
    section 'find_package in CMake'
    run cmake -S crates/capi/tests/cmake -B "$work/cmake" -DCMAKE_PREFIX_PATH="$stage" -DSOURCES="$PWD" \
        -DEXPECTED_VERSION="$(pkg-config --modversion unvme)"
    run cmake --build "$work/cmake"
    for program in shared static compat; do
        run "$work/cmake/$program"
    done
else
    section 'find_package in CMake: SKIPPED, there is no cmake'
fi

section 'static library'
compile_all static "$static_libs"
folder=static keys=500
run_examples
run_tests

section 'address sanitizer'
strict="$strict -fsanitize=address,undefined -fno-sanitize-recover=undefined"
compile_all asan "$shared_libs"
folder=asan keys=500
run_examples
run_tests
run "$work/asan/defects"

section 'valgrind'
folder=shared keys=50
set -- valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,indirect,possible \
    --fair-sched=yes --suppressions=crates/capi/tests/c/valgrind.supp
run_examples "$@"
run_tests "$@"

section 'devices that other processes serve'
unvme=$target/debug/unvme
UNVME_HOME=$work/home
export UNVME_HOME
servers=
trap 'kill -9 $servers 2>/dev/null || true' EXIT

# Waits until a file has a line with a text.
wait_for() {
    tries=0
    until grep -q "$2" "$1"; do
        tries=$((tries + 1))
        if [ $tries -gt 1200 ]; then
            tail -n 20 "$1" >&2
            echo "capi: there is no \`$2\` in $1" >&2
            exit 1
        fi
        sleep 0.1
    done
}

# Serves a device in the background: serve <name of the log> <argument> ...
serve() {
    log=$work/$1.log
    shift
    "$unvme" serve "$@" >"$log" 2>&1 &
    servers="$servers $!"
    wait_for "$log" 'serving '
}

run "$unvme" device create 0000:03:00.0 --size 64M
run "$unvme" device create 0000:04:00.0 --type kv --size 64M --namespaces block:16M,block:16M,32M
run "$work/shared/queue" 0000:04:00.0
run "$unvme" device create 0000:05:00.0 --size 64M
run "$work/shared/fs"
run "$work/asan/fs"
run "$work/shared/example-files" 0000:05:00.0
grep -q '184 bytes are durable' "$work/output.log"
serve socket 0000:03:00.0
run "$work/shared/descriptor" 0000:03:00.0 interrupting
serve network mem:block:64M --tcp 0 --nqn nqn.2014-08.org.example:descriptor
address=$(sed -n 's/.*\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/network.log" | head -n 1)
run "$work/shared/descriptor" "tcp:$address/nqn.2014-08.org.example:descriptor" interrupting

section 'a device that is served by another process, and unplugged'
run "$unvme" device create 0000:02:00.0 --type kv --size 64M
serve removed 0000:02:00.0
"$work/shared/removal" 0000:02:00.0 >"$work/removal.log" 2>&1 &
program=$!
wait_for "$work/removal.log" ready
run "$unvme" device unplug 0000:02:00.0
if ! wait $program; then
    cat "$work/removal.log" >&2
    echo 'capi: the program did not survive the removal' >&2
    exit 1
fi

section 'uninstall'
run make --no-print-directory -C crates/capi uninstall PROFILE=dev PREFIX="$stage"
left=$(find "$stage" -type f -o -type l)
if [ -n "$left" ]; then
    echo "capi: left behind: $left" >&2
    exit 1
fi
section ok
