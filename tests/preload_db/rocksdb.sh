# shellcheck shell=sh disable=SC2154
# RocksDB's programs, unmodified, by its own FileSystem for POSIX: buffered, by mmap, past the cache, killed.
needs db_bench ldb sst_dump

base=$dir/rocks

bench() {
    benchmarks=$1
    shift
    good db_bench --db="$base" --benchmarks="$benchmarks" --num="${long:+10}10000" --value_size=400 --seed=1 \
        --write_buffer_size=1048576 --target_file_size_base=1048576 --compression_type=none --verify_checksum=1 "$@"
}

# Every pair that is there.
contents() {
    good ldb --db="$base" dump --hex
    sed '/^Keys in range/d' "$work/output" | sha256sum | said "$1" "$(cut -d' ' -f1)"
}

bench fillrandom,overwrite --threads=1
contents filled
bench compact,readseq,readrandom,seekrandom --use_existing_db=1 --threads=2
contents compacted
bench readrandom,readseq --use_existing_db=1 --mmap_read=1
bench fillrandom,readrandom --threads=1 --mmap_write=1 --mmap_read=1
contents 'by mmap'
bench overwrite,readrandom,multireadrandom --use_existing_db=1 --use_direct_reads=1 \
    --use_direct_io_for_flush_and_compaction=1 --threads=1 --multiread_batched=1
contents 'past the cache'
good ldb --db="$base" checkconsistency
good sst_dump --file="$base" --command=check --verify_checksum
good ldb --db="$dir/other" --create_if_missing put name Ada
good ldb --db="$dir/other" repair
good ldb --db="$dir/other" get name
grep -v '^OK' "$work/output" | tail -n 1 | said

# What fills a database wants a new one.
fills=fillrandom
for round in 1 ${long:+2 3 4 5}; do
    start db_bench --db="$dir/killed" --num=100000000 --value_size=400 --sync=1 --write_buffer_size=131072 \
        --benchmarks=$fills --threads=2 --use_existing_db=$((round > 1)) --stats_per_interval=1 \
        --stats_interval=200 --histogram=0
    until_it_is grep -Eq ',[0-9]{4,}\) ops' "$work/server"
    murder
    good ldb --db="$dir/killed" checkconsistency
    good ldb --db="$dir/killed" dump --count_only
    count=$(sed -n 's/^Keys in range: //p' "$work/output")
    fills=overwrite
    [ "${count:-0}" -ge 1000 ] || fail "of more than 1000 keys that were synced ${count:-0} are there"
done
