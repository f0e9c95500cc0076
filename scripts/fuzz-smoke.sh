#!/bin/sh
# Builds every fuzz target with coverage feedback on stable Rust and runs each for some seconds, as many at
# once as there are processors.
#
#   scripts/fuzz-smoke.sh [seconds per target, default 10] [target ...]
#
# A target is a file in fuzz/fuzz_targets/ with its [[bin]] in fuzz/Cargo.toml. Inputs in fuzz/seeds/<target>/
# are tried first. What a run finds on the way is kept in fuzz/corpus/<target>/, and an input that crashes the
# target in fuzz/artifacts/<target>/; neither is tracked.
set -eu

cd "$(dirname "$0")/../fuzz"
seconds=${1:-10}
case $seconds in
'' | *[!0-9]*)
    echo "usage: $0 [seconds per target] [target ...]" >&2
    exit 2
    ;;
esac
[ $# -gt 0 ] && shift

if [ $# -eq 0 ]; then
    for file in fuzz_targets/*.rs; do
        name=${file##*/}
        set -- "$@" "${name%.rs}"
    done
fi

host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR="$target_dir"

# Coverage counters are an LLVM pass, which stable Rust can ask for; only the address sanitizer needs nightly,
# and without unsafe code in the parsers it has little to find. With --target these flags stay away from build
# scripts, which are not linked with libFuzzer.
RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1 \
-Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
export RUSTFLAGS

echo "fuzz: building $# targets"
cargo build --quiet --locked --release --target "$host" --bins

# Runs one: target NAME
target() {
    name=$1
    program=$target_dir/$host/release/$name
    if [ ! -f "fuzz_targets/$name.rs" ]; then
        echo "fuzz: there is no fuzz_targets/$name.rs" >&2
        exit 1
    fi
    if [ ! -x "$program" ]; then
        echo "fuzz: fuzz_targets/$name.rs has no [[bin]] of that name in fuzz/Cargo.toml" >&2
        exit 1
    fi
    mkdir -p "corpus/$name" "artifacts/$name"
    seeds=
    [ -d "seeds/$name" ] && seeds=seeds/$name
    log=artifacts/$name/last.log
    # A single hanging input fails after 10 s, and one that allocates without bound at 1 GiB.
    if ! "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="artifacts/$name/" "corpus/$name" ${seeds:+"$seeds"} >"$log" 2>&1; then
        # A long backtrace would push the reason out of the last lines.
        grep -A 3 'panicked at' "$log" >&2 || true
        echo '...' >&2
        tail -n 20 "$log" >&2
        echo "fuzz: $name failed; the input is in fuzz/artifacts/$name/, run it with" >&2
        echo "    $program fuzz/artifacts/$name/<input>" >&2
        exit 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    # Feedback that is missing (no counters) would make this a test that cannot fail.
    if ! grep -q ' cov: ' "$log"; then
        echo "fuzz: $name ran without coverage feedback; see fuzz/$log" >&2
        exit 1
    fi
    cov=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
    echo "fuzz: $name ok, $runs runs, $cov edges covered"
}

# Waits for those that run; each has said what is wrong with it.
settle() {
    for child in $children; do
        wait "$child" || failed=yes
    done
    children=
    count=0
}

children=
count=0
failed=
for name in "$@"; do
    target "$name" &
    children="$children $!"
    count=$((count + 1))
    [ "$count" -lt "$(nproc)" ] || settle
done
settle
[ -z "$failed" ]
