#!/usr/bin/env bash
# Installs what `make build` has built, as `sudo make install` on a machine without Rust does, under a umask
# that takes all from others; looks at what is there; uninstalls it, and looks at what is left.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root

fail() { echo "tests/install.sh: $*" >&2; exit 1; }

words() {
  (umask 077; env -i PATH=/usr/bin:/bin HOME=/nonexistent SUDO_USER=somebody \
    ${CARGO_TARGET_DIR:+CARGO_TARGET_DIR="$CARGO_TARGET_DIR"} \
    make --no-print-directory "$1" DESTDIR="$root" PREFIX=/usr) > "$stage/log" 2>&1 ||
    { cat "$stage/log" >&2; fail "make $1 failed"; }
}

mkdir "$root"
words install
grep -q 'cargo build' "$stage/log" && fail 'it was built again'

cd "$root/usr"
for file in bin/unvme bin/kv_perf lib/libunvme.so lib/libunvme.a lib/pkgconfig/unvme.pc include/unvme/unvme.h \
  lib/cmake/unvme/unvmeConfig.cmake share/unvme/sample_config.json share/man/man1/unvme.1 \
  share/man/man1/unvme-device-create.1 share/bash-completion/completions/unvme share/zsh/site-functions/_unvme \
  share/fish/vendor_completions.d/unvme.fish; do
  [ -e "$file" ] || fail "$file is missing"
done
for helper in mount.unvme mount.fuse.unvme umount.unvme umount.fuse.unvme; do
  [ "$(readlink "sbin/$helper")" = /usr/bin/unvme ] || fail "sbin/$helper does not lead to unvme"
done
wrong=$(find . ! -type l ! -perm -o=r -print -o -type d ! -perm -o=x -print)
[ -z "$wrong" ] || fail "not for everybody: $wrong"
for file in bin/unvme lib/libunvme.so; do
  readelf -S "$file" | grep -q '\.debug_info' && fail "$file has debugging information"
done
[ "$(bin/unvme version)" = "unvme version $(sed -n 's/^version = "\(.*\)"/\1/p' "$OLDPWD/Cargo.toml")" ] ||
  fail "bin/unvme says $(bin/unvme version)"
bin/unvme read mem:block:16M | cmp -n 512 - /dev/zero || fail 'bin/unvme does not read'
if [ -f "${CARGO_TARGET_DIR:-$OLDPWD/target}/fio/fio-unvme.so" ]; then
  [ -e share/unvme/fio_plugin/unvme2_fio_plugin ] || fail 'share/unvme/fio_plugin has no engine'
  (cd share/unvme/fio && LD_LIBRARY_PATH=../../../lib/fio DEVICE='mem\:block\:16M' fio verify.fio) >"$stage/fio.log" 2>&1 ||
    { cat "$stage/fio.log" >&2; fail 'fio does not run with the engine'; }
fi
bin/unvme run --dir "$stage/files=mem:block:64M" -- sh -c "echo one > $stage/files/a && cat $stage/files/a" >"$stage/run.log" 2>&1 &&
  grep -q one "$stage/run.log" && [ -z "$(ls "$stage/files")" ] ||
  { cat "$stage/run.log" >&2; fail 'a program does not run with lib/unvme/libunvme_preload.so'; }
if [ -f "${CARGO_TARGET_DIR:-$OLDPWD/target}/rocksdb/librocksdb_unvme.so" ]; then
  bin/unvme rocksdb -d mem:block:64M -- db_bench --benchmarks=fillseq --num=100 >"$stage/rocksdb.log" 2>&1 ||
    { cat "$stage/rocksdb.log" >&2; fail 'db_bench does not run with lib/unvme/librocksdb_unvme.so'; }
  UNVME=bin/unvme UNVME_HOME=$stage/home NUM_KEYS=100 DURATION=1 SKIP_OVERWRITE=1 SKIP_READWRITE=1 SKIP_WRITESYNC=1 \
    share/unvme/unvme_rocksdb/run_tests.sh -o "$stage/results" >"$stage/rocksdb.log" 2>&1 ||
    { cat "$stage/rocksdb.log" >&2; fail "the guide's tests of RocksDB do not run"; }
fi
grep -q '^prefix=/usr$' lib/pkgconfig/unvme.pc || fail "unvme.pc says $(grep prefix= lib/pkgconfig/unvme.pc)"
cd "$OLDPWD"

words uninstall
left=$(find "$root" ! -type d)
[ -z "$left" ] || fail "uninstalling left $left"
left=$(find "$root/usr" -mindepth 2 -type d)
[ -z "$left" ] || fail "uninstalling left empty folders: $left"
echo 'installed, looked at, uninstalled: ok'
