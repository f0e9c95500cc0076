#!/usr/bin/env bash
# The file system as programs see it: mounted, under what others have written to try file systems.
#
#   tests/fs.sh [-l] UNVME TOOLS
#
# TOOLS is what scripts/fs-tools.sh has made. With -l everything runs for longer. Needs root and /dev/fuse.
set -euo pipefail
long=
if [ "$1" = -l ]; then
  long=1
  shift
fi
unvme=$(readlink -f "$1")
tools=$(readlink -f "$2")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ "$(id -u)" -ne 0 ] || ! [ -e /dev/fuse ]; then
  echo "tests/fs.sh: SKIPPED: a mount needs root and /dev/fuse"
  exit 0
fi
work=$(mktemp -d)
# Other users reach what is mounted in it.
chmod 755 "$work"
export UNVME_HOME=$work/home
mnt=$work/mnt
mkdir "$mnt"
device=0000:02:00.0
passed=0

cleanup() {
  cd /
  umount -l "$mnt" 2>/dev/null || true
  pkill -9 -f "^[^ ]* mount $device $mnt" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

fail() {
  echo "tests/fs.sh: $*" >&2
  [ ! -f "$work/out" ] || tail -n 40 "$work/out" >&2
  exit 1
}

# A step, described first.
good() {
  local what=$1
  shift
  timeout 600 "$@" >"$work/out" 2>&1 || fail "$what: $*"
  passed=$((passed + 1))
}

# A command that fails with a line that says why.
bad() {
  local what=$1 line=$2
  shift 2
  if timeout 60 "$@" >"$work/out" 2>&1; then fail "$what: it succeeded: $*"; fi
  grep -qE "$line" "$work/out" || fail "$what: no line like \`$line\`"
  passed=$((passed + 1))
}

says() { grep -qE "$1" "$work/out" || fail "no line like \`$1\`"; }

fs() { "$unvme" fs "$1" "$device" "${@:2}"; }
check() {
  good "check $1" "$unvme" fs check "$device"
  says 'all is well'
}

"$unvme" device create "$device" --size 2G >/dev/null
bad 'no file system' 'there is no file system.*mkfs' "$unvme" mount "$device" "$mnt"
good 'make' "$unvme" fs mkfs "$device" --label try
bad 'no directory' 'not a directory' "$unvme" mount "$device" "$work/none"
bad 'an option that cannot be' 'expected policy=s3fifo, lru or none' "$unvme" mount "$device" "$mnt" -o policy=fifo
bad 'an unknown option' 'allow_othr: unknown option; did you mean allow_other\?' \
  "$unvme" mount "$device" "$mnt" -o ro,allow_othr
bad 'an option that cannot be carried out' 'strictatime: not supported' "$unvme" mount "$device" "$mnt" -o strictatime

# What returns with sync, and names with dirsync, is there after a kill.
kill_daemon() {
  pkill -9 -f "^[^ ]* mount $device $mnt"
  umount -l "$mnt"
  while pgrep -f "^[^ ]* mount $device $mnt" >/dev/null; do sleep 0.05; done
}
good 'mount, sync' "$unvme" mount "$device" "$mnt" -o sync,nofail,x-systemd.automount
mkdir "$mnt/synced"
for n in 1 2 3; do echo "$n" >"$mnt/synced/$n"; done
mv "$mnt/synced/3" "$mnt/synced/moved"
chmod 600 "$mnt/synced/1"
fallocate -l 64K "$mnt/synced/2"
kill_daemon
good 'mount, dirsync' "$unvme" mount "$device" "$mnt" -o dirsync
[ "$(cat "$mnt/synced/1" "$mnt/synced/moved" | tr -d '\n')" = 13 ] || fail 'a file of a mount with sync is lost'
[ "$(stat -c %a "$mnt/synced/1") $(stat -c %s "$mnt/synced/2")" = '600 65536' ] || fail 'sync: attributes are lost'
mkdir "$mnt/synced/directory"
ln -s target "$mnt/synced/link"
rm "$mnt/synced/2"
kill_daemon
check 'after the kills of sync and dirsync'
good 'mount' "$unvme" mount "$device" "$mnt"
[ -d "$mnt/synced/directory" ] && [ -L "$mnt/synced/link" ] && [ ! -e "$mnt/synced/2" ] || fail 'dirsync: names are lost'
rm -r "$mnt/synced"

# The next mount waits for what umount(8) leaves behind; the helper of umount(8) waits itself.
dd if=/dev/zero of="$mnt/dirty" bs=1M count=60 status=none
umount -i "$mnt"
good 'mount at once' "$unvme" mount "$device" "$mnt"
dd if=/dev/zero of="$mnt/dirty" bs=1M count=60 status=none
ln -sf "$unvme" "$work/umount.fuse.unvme"
good 'umount as umount(8) does' "$work/umount.fuse.unvme" "$mnt" -nv -t fuse.unvme
good 'the device is free' "$unvme" fs rm "$device" /dirty

# As mount(8) does: its flags, and set-user-id programs and device nodes by default.
ln -sf "$unvme" "$work/mount.fuse.unvme"
good 'mount -f' "$work/mount.fuse.unvme" "$device" "$mnt" -sfnv -t fuse.unvme -o rw,whatever
if grep -q " $mnt fuse.unvme " /proc/self/mounts; then fail 'mount -f has mounted'; fi
bad 'another type' 'ext4: expected fuse.unvme' "$work/mount.fuse.unvme" "$device" "$mnt" -t ext4
good 'mount, with suid and dev' "$work/mount.fuse.unvme" "$device" "$mnt" -n -o rw,allow_other
cp "$(command -v id)" "$mnt/id"
chmod 4755 "$mnt/id"
# With no_new_privs the kernel ignores set-user-id bits.
if grep -q '^NoNewPrivs:.*0' /proc/self/status; then
  [ "$(setpriv --reuid 65534 --regid 65534 --clear-groups "$mnt/id" -u)" = 0 ] || fail 'set-user-id has no effect'
fi
mknod "$mnt/null" c 1 3
good 'a device node' sh -c "echo x >'$mnt/null'"
rm "$mnt/id" "$mnt/null"
good 'umount' "$unvme" umount "$mnt"

good 'mount' "$unvme" mount "$device" "$mnt" -o allow_other
cc -O1 -pthread -o "$work/stale" "$root/tests/fs_stale.c"
good 'no stale pages' "$work/stale" "$mnt/stale"
rm "$mnt/stale"
# An overlay's upper directory: whiteouts, trusted attributes, types of names.
if grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null; then
  mkdir -p "$work/lower/dir" "$work/merged" "$mnt/upper" "$mnt/work"
  for name in removed moved dir/inside; do echo lower >"$work/lower/$name"; done
  good 'mount an overlay' mount -t overlay overlay -o "lowerdir=$work/lower,upperdir=$mnt/upper,workdir=$mnt/work" "$work/merged"
  good 'change it' bash -c "cd '$work/merged' && rm removed && mv moved renamed && echo more >>renamed && rm -r dir && mkdir dir && touch dir/new"
  [ "$(cd "$work/merged" && find . -mindepth 1 | sort | tr '\n' ' ')" = './dir ./dir/new ./renamed ' ] || fail 'the overlay lists other names'
  [ "$(stat -c '%F %t:%T' "$mnt/upper/removed")" = 'character special file 0:0' ] || fail 'there is no whiteout'
  good 'umount the overlay' umount "$work/merged"
  rm -rf "$mnt/upper" "$mnt/work"
fi
grep -q "^$device $mnt fuse.unvme " /proc/self/mounts || fail 'it is not in the list of mounts'
bad 'a second mount' 'has the file system mounted|in use' "$unvme" mount "$device" "$work/home"

# pjdfstest: what POSIX says, in the name of several users.
mkdir "$mnt/pjd"
good 'pjdfstest' "$tools/bin/pjdfstest" -c "$root/tests/pjdfstest.toml" -p "$mnt/pjd"
says '^Summary: 0 failed, [0-9]+ skipped, 3[78][0-9] passed'
rm -rf "$mnt/pjd"

# fsx: one file, changed in every way, beside what it should be.
for seed in $(seq 1 ${long:+20} 1 | head -${long:+2}1); do
  good "fsx, seed $seed" "$tools/bin/fsx" -N "${long:+2}5000" -S "$seed" "$mnt/fsx"
done

# fio: what was written is read again.
for engine in psync mmap io_uring; do
  for direct in 0 1; do
    [ "$engine$direct" != mmap1 ] || continue
    good "fio, $engine, direct $direct" fio --name=v --filename="$mnt/fio" --size="${long:+5}12m" --bsrange=1k-64k --blockalign=4k \
      --rw=randwrite --ioengine="$engine" --iodepth=8 --direct="$direct" --bs_unaligned=0 --bs=4k --verify=crc32c \
      --verify_fatal=1 --do_verify=1 --verify_state_save=0
    rm "$mnt/fio"
  done
done

# SQLite: a writer that is killed, several at once, and what is left is in order.
sql() { sqlite3 -cmd '.timeout 60000' "$mnt/db" "$@"; }
for journal in delete wal; do
  sql "pragma journal_mode=$journal; create table if not exists t(a integer primary key, b blob);" >/dev/null
  (
    for _ in $(seq 200); do sql 'insert into t(b) values(randomblob(3000));' || exit; done
  ) 2>/dev/null &
  victim=$!
  for _ in 1 2 3; do
    good 'a writer' sqlite3 -cmd '.timeout 60000' "$mnt/db" \
      'insert into t(b) with recursive c(x) as (select 1 union all select x+1 from c where x<300) select randomblob(400) from c;'
  done
  kill -9 "$victim" 2>/dev/null || true
  wait "$victim" 2>/dev/null || true
  # And what it has just begun. SQLite waits for nobody when the journal is to be another one.
  while pkill -9 -f "^sqlite3 .*$mnt/db"; do sleep 0.1; done
  good "SQLite, journal $journal" sqlite3 -cmd '.timeout 60000' "$mnt/db" 'pragma integrity_check; select count(*) >= 900 from t;'
  [ "$(head -1 "$work/out")$(tail -1 "$work/out")" = ok1 ] || fail "SQLite, journal $journal"
done

# SQLite's own tests: of locks, and of what a crash at any write leaves. Its journals, its own way of dying.
mkdir "$mnt/sqlite"
sqlite_tests='lock lock2 lock3 lock4 lock5 lock6 lock7 crash2 crash6 crash8 wal wal5 walcrash2 walpersist savepoint'
[ -z "$long" ] || sqlite_tests="$sqlite_tests crash crash3 crash4 crash5 crash7 wal3 walcrash walcrash3 walcrash4
  waloverwrite walshared pager2 savepoint2 io ioerr journal1 journal2 journal3 mmap1 mmap2 mmap3 exclusive
  exclusive2 shared_err bigfile backup atomic superlock tempdb incrvacuum"
for test in $sqlite_tests; do
  good "SQLite's test $test" bash -c "cd '$mnt/sqlite' && '$tools/bin/testfixture' '$tools/sqlite/test/$test.test'"
  says '^0 errors out of [0-9]+ tests'
done
rm -rf "$mnt/sqlite"

# git and tar: many small files.
good 'git init' git init -q "$mnt/repo"
cp -r "$root/crates" "$mnt/repo/"
good 'git add' git -C "$mnt/repo" add -A
good 'git commit' git -C "$mnt/repo" -c user.name=t -c user.email=t@example.org commit -qm all
good 'git clone' git clone -q --no-hardlinks "$mnt/repo" "$mnt/clone"
good 'git fsck' git -C "$mnt/clone" fsck --strict
good 'git status' git -C "$mnt/clone" status --porcelain
[ ! -s "$work/out" ] || fail 'git sees changes in a fresh clone'
tar -C "$root" -cf "$work/all.tar" crates docs tests
mkdir "$mnt/tar"
good 'tar x' tar -C "$mnt/tar" -xf "$work/all.tar"
good 'tar d' tar -C "$mnt/tar" -df "$work/all.tar"

# What FUSE passes on: holes, extended attributes, copies, links, locks, an open file without a name.
good 'fallocate' fallocate -l 1M "$mnt/f"
good 'a hole' fallocate -p -o 4096 -l 8192 "$mnt/f"
[ "$(stat -c %b "$mnt/f")" -eq $(((1048576 - 8192) / 512)) ] || fail 'the hole has blocks'
good 'xattr' python3 - "$mnt/f" <<'PY'
import errno, os, struct, sys, fcntl
path, none = sys.argv[1], 0xffffffff
os.setxattr(path, "user.k", b"v" * 20000)
assert os.getxattr(path, "user.k") == b"v" * 20000 and os.listxattr(path) == ["user.k"]
os.removexattr(path, "user.k")
# Access control lists, which no check would honor.
acl = struct.pack("<I" + "HHI" * 5, 2, 1, 6, none, 2, 6, 99, 4, 4, none, 16, 6, none, 32, 0, none)
for name in ("system.posix_acl_access", "system.posix_acl_default"):
    for call in (lambda: os.setxattr(os.path.dirname(path), name, acl),
                 lambda: os.getxattr(os.path.dirname(path), name)):
        try:
            call()
        except OSError as e:
            assert e.errno == errno.EOPNOTSUPP, e
        else:
            raise AssertionError(name)
os.setxattr(path, "user.unvme.write_hint", b"short")
assert os.getxattr(path, "user.unvme.write_hint") == b"short"
file = os.open(path, os.O_RDWR)
os.write(file, b"head")
assert os.lseek(file, 0, os.SEEK_HOLE) in (4096, 1048576)
os.lseek(file, 4, os.SEEK_SET)
os.unlink(path)
os.write(file, b"tail")
assert os.pread(file, 8, 0) == b"headtail" and os.fstat(file).st_nlink == 0
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
other = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
assert os.copy_file_range(file, other, 8, 0, 100) == 8
assert os.pread(other, 200, 0) == bytes(100) + b"headtail"
os.fsync(other)
for when in (-1, -1_000_000_000, -1_500_000_000, -10**18 - 1):
    os.utime(path, ns=(when, when))
    assert (os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns) == (when, when), (when, os.stat(path))
PY
fs_name=$(printf 'n%.0s' $(seq 255))
good 'the longest name' touch "$mnt/$fs_name"
bad 'a name that is too long' 'too long' touch "$mnt/${fs_name}n"

find "$mnt/tar" -type f -print0 | sort -z | xargs -0 sha256sum >"$work/sums"
good 'umount' "$unvme" umount "$mnt"
check 'after everything'
good 'mount by the name mount(8) uses' bash -c "ln -sf '$unvme' '$work/mount.fuse.unvme' && '$work/mount.fuse.unvme' $device $mnt -o rw,allow_other"
good 'what was there' sha256sum --quiet -c "$work/sums"
good 'SIGTERM' pkill -TERM -f "^[^ ]* mount $device $mnt"
for _ in $(seq 600); do
  pgrep -f "^[^ ]* mount $device $mnt" >/dev/null || break
  sleep 0.1
done
"$unvme" fs info "$device" --output json >"$work/out"
says '"clean": true'

# Killed under load: what was synced is there, and everything fits together.
for round in $(seq 1 "${long:+1}2"); do
  good 'mount' "$unvme" mount "$device" "$mnt"
  mkdir -p "$mnt/kill"
  : >"$work/promised.$round"
  (
    for n in $(seq 100000); do
      dd if=/dev/urandom of="$mnt/kill/$round.$n" bs=7000 count=3 conv=fsync status=none || exit
      sha256sum "$mnt/kill/$round.$n" >>"$work/synced.$round" || exit
      mv "$mnt/kill/$round.$n" "$mnt/kill/moved" && cp "$mnt/kill/moved" "$mnt/kill/$round.$n.copy" || exit
      ln "$mnt/kill/moved" "$mnt/kill/$round.$n" && rm "$mnt/kill/moved" && sync "$mnt/kill/$round.$n" || exit
      echo "$round.$n" >>"$work/promised.$round"
    done
  ) 2>/dev/null &
  load=$!
  (cp -r "$root/crates" "$mnt/kill/tree.$round" 2>/dev/null || true) &
  copier=$!
  while [ "$(wc -l <"$work/promised.$round")" -lt 20 ]; do
    kill -0 "$load" 2>/dev/null || fail 'the load has ended'
    sleep 0.02
  done
  pkill -9 -f "^[^ ]* mount $device $mnt"
  wait "$load" "$copier" 2>/dev/null || true
  umount -l "$mnt"
  check "after kill $round"
  good 'mount' "$unvme" mount "$device" "$mnt"
  while read -r name; do
    grep " $mnt/kill/$name\$" "$work/synced.$round" | sha256sum --quiet -c - >"$work/out" 2>&1 || fail "$name is not what was synced"
  done <"$work/promised.$round"
  good 'rm -rf' rm -rf "$mnt/kill"
  good 'umount' "$unvme" umount "$mnt"
  check "after rm $round"
done

# Read-only; and without a mount.
good 'mount, read-only' "$unvme" mount "$device" "$mnt" -o ro
bad 'a write to it' 'Read-only' touch "$mnt/x"
good 'umount' "$unvme" umount "$mnt"
bad 'umount of nothing' 'no file system of unvme' "$unvme" umount "$mnt"
good 'get' "$unvme" fs get "$device" -r /tar/docs "$work/docs"
good 'what get brought' diff -r "$root/docs" "$work/docs"
good 'put' "$unvme" fs put "$device" -r "$work/docs" /put
good 'cp' "$unvme" fs cp "$device" -r /put /copy
good 'mv' "$unvme" fs mv "$device" /copy /moved
good 'get again' "$unvme" fs get "$device" -r /moved "$work/moved"
good 'what came back' diff -r "$root/docs" "$work/moved"
good 'rm' "$unvme" fs rm "$device" -r /put /moved
bad 'a path that is not there' '/none: No such file' "$unvme" fs cat "$device" /none
bad 'a directory' 'directory' "$unvme" fs cat "$device" /
check 'at the end'

# A full device: an error, and room again when something is removed.
"$unvme" device create 0000:03:00.0 --size 64M >/dev/null
device=0000:03:00.0
good 'make a small one' "$unvme" fs mkfs "$device"
good 'mount it' "$unvme" mount "$device" "$mnt"
echo kept >"$mnt/kept"
sync "$mnt/kept"
bad 'too much' 'No space left' dd if=/dev/zero of="$mnt/big" bs=1M count=100
bad 'too many' 'No space left' bash -c "for n in \$(seq 40000); do echo x >'$mnt/n'\$n || exit 1; done"
good 'room again' bash -c "rm '$mnt/big' && sync -f '$mnt' && dd if=/dev/zero of='$mnt/big' bs=1M count=20 conv=fsync"
[ "$(cat "$mnt/kept")" = kept ] || fail 'something was lost on a full device'
good 'umount' "$unvme" umount "$mnt"
check 'after it was full'

# Inodes that cannot be read just then: a listing has all names. The second block of inodes has 17 to 32.
device=0000:04:00.0
"$unvme" device create "$device" --size 64M >/dev/null
good 'make one with errors' "$unvme" fs mkfs "$device"
good 'mount it' "$unvme" mount "$device" "$mnt"
mkdir "$mnt/d"
for n in $(seq 40); do echo "$n" >"$mnt/d/f$n"; done
good 'umount' "$unvme" umount "$mnt"
good 'a block that cannot be read' "$unvme" fault add "$device" --opcode read --lba 4128-4135 --status 0x281
good 'mount' "$unvme" mount "$device" "$mnt"
for _ in 1 2; do
  [ "$(ls "$mnt/d" | wc -l)" = 40 ] || fail 'a listing leaves out names'
done
bad 'stat' 'Input/output error' stat "$mnt/d/f20"
bad 'tar' 'f20.*Input/output error' tar cf "$work/d.tar" -C "$mnt" d
bad 'rm' 'f20.*Input/output error' rm -r "$mnt/d"
[ "$(ls "$mnt/d" | wc -l)" = 16 ] || fail 'what could not be removed is not listed'
good 'umount' "$unvme" umount "$mnt"
good 'it can be read again' "$unvme" fault clear "$device"
good 'mount' "$unvme" mount "$device" "$mnt"
good 'what is left' bash -c "cat '$mnt'/d/f* | wc -l | grep -qx 16"
good 'umount' "$unvme" umount "$mnt"
check 'after errors'
device=0000:03:00.0

# The guide's tools, by its names for devices.
cat >"$work/lba.json" <<JSON
{ "cache": "off", "ssd_type": "lba", "app_hugemem_size": 320, "slab_size": 16, "log_level": 0, "device_description": [
  { "dev_id": "$device", "core_mask": "3", "sync_mask": "3", "cq_thread_mask": "0", "queue_depth": 8 } ] }
JSON
good 'mkfs' "$unvme" mkfs unvme_bdev0n1 "$work/lba.json" -C 1M
says '^Initializing filesystem on bdev unvme_bdev0n1\.\.\.$'
says '^done\.$'
bad 'a device that is not there' 'unvme_bdev0n1 to unvme_bdev0n1' "$unvme" mkfs unvme_bdev1n1 "$work/lba.json"
good 'blobfs_perf' "$unvme" blobfs_perf -j "$work/lba.json" -s 8M -w write -w read -w randread -v -e -t -p -a
says '^randread +all .* 0$'
good 'blobfs_perf, direct' "$unvme" blobfs_perf -j "$work/lba.json" -s 8M -d -b 4096 -e -w randread -v -r 2 --output json
says '"miscompares": 0'
at=$("$unvme" fs dump "$device" /test_static_1 --output json | sed -n 's/.*"device_offset": \([0-9]*\).*/\1/p' | head -1)
head -c 4096 /dev/urandom >"$work/noise"
good 'damage' "$unvme" write "$device" -s $((at / 512)) -z 4096 --data "$work/noise" --force
bad 'a miscompare' 'not what was written' "$unvme" blobfs_perf -j "$work/lba.json" -s 8M -e -w read -v
"$unvme" fuse unvme_bdev0n1 "$work/lba.json" "$mnt" >"$work/fuse.out" 2>&1 &
server=$!
for _ in $(seq 600); do
  if grep -q "^$device $mnt fuse.unvme " /proc/self/mounts; then break; fi
  sleep 0.1
done
good 'a file of blobfs_perf by fuse' cmp -n 8388608 "$mnt/test_static_0" "$mnt/test_static_0"
kill -INT "$server"
wait "$server" || fail "fuse ended with $?"
check 'after fuse'

echo "tests/fs.sh: $passed steps passed"
