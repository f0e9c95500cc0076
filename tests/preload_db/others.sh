# shellcheck shell=sh disable=SC2154
# Programs that nobody has thought of: LMDB's, which maps its files and locks by what is in them, and fossil,
# a version control system on SQLite.
needs mdb_load mdb_dump mdb_stat mdb_copy fossil

awk -v count="${long:+10}20000" 'BEGIN {
    print "VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=268435456\nmaxreaders=126\ndb_pagesize=4096\nHEADER=END"
    for (i = 0; i < count; i++) {
        printf " %08x\n ", (i * 7919) % 1048576
        for (j = 0; j < 40; j++) printf "%02x", (i * 31 + j * 17) % 256
        printf "\n"
    }
    print "DATA=END"
}' >"$work/records"

good mkdir "$dir/lmdb" "$dir/copy"
good mdb_load -f "$work/records" "$dir/lmdb"
good mdb_dump "$dir/lmdb"
sed '/^HEADER=END/,$!d' "$work/output" | sha256sum | said lmdb
good mdb_stat -e "$dir/lmdb"
grep -v -i 'map address\|number of readers\|pid' "$work/output" | said
good mdb_copy -c "$dir/lmdb" "$dir/copy"
good mdb_load -f "$work/records" "$dir/copy"
good mdb_dump "$dir/copy"
sed '/^HEADER=END/,$!d' "$work/output" | sha256sum | said 'lmdb, copied'

# It writes while others read, each a process of its own.
start mdb_load -f "$work/records" "$dir/lmdb"
for _ in 1 2 3; do
    good mdb_stat "$dir/lmdb"
done
ended

# fossil, in a folder of ours; its own settings are there, too.
fossil_in() {
    folder=$dir/$1
    shift
    good_in "$folder" env HOME="$dir" FOSSIL_HOME="$dir" USER=tester fossil "$@"
}

good mkdir "$dir/tree" "$dir/clone"
good cp -r "$root/crates/fs" "$dir/tree/fs"
fossil_in . init --date-override 2020-01-01T00:00:00 repository
fossil_in tree open ../repository --force
fossil_in tree add fs
fossil_in tree commit -m all --no-warnings --date-override 2020-01-02T00:00:00
# shellcheck disable=SC2016
good sh -c 'echo more >>"$1"' sh "$dir/tree/fs/Cargo.toml"
fossil_in tree changes
said <"$work/output"
fossil_in tree commit -m more --no-warnings --date-override 2020-01-03T00:00:00
fossil_in tree revert -r prev fs/Cargo.toml
fossil_in tree changes
said <"$work/output"
fossil_in tree undo
fossil_in . clone repository cloned
fossil_in clone open ../cloned --force
good diff -r -x .fslckout "$dir/tree" "$dir/clone"
fossil_in clone test-integrity
says 'low-level database integrity-check: ok'
fossil_in clone rebuild
