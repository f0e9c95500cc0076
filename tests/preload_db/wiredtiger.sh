# shellcheck shell=sh disable=SC2154
# WiredTiger, MongoDB's engine: YCSB's workloads with checked records, its own benchmark, its own tests that
# kill it and look what is there.
needs "$wiredtiger/bin/wtperf" "$wiredtiger/bin/test_random_abort" "$wiredtiger/bin/wt" cc

ycsb=$work/ycsb_wt
[ -x "$ycsb" ] || cc -O2 -std=gnu11 -Wall -Wextra -I"$wiredtiger/include" "$share/ycsb/ycsb_wt.c" -o "$ycsb" \
    -L"$wiredtiger/lib" -lwiredtiger -Wl,-rpath,"$wiredtiger/lib" -lm -lpthread >"$work/output" 2>&1 ||
    fail 'ycsb_wt cannot be compiled'

records=${long:+10}20000
cache=$((records / 10000))
good "$ycsb" -r "$records" -c $((cache + 2)) -v "$dir/ycsb" load check a b c d e f check
for phase in load a b c d e f; do
    says "^$phase +all +$records "
done
good "$ycsb" -r "$records" -c $((cache + 2)) -v -k 1 -C 'direct_io=[data]' "$dir/ycsb" a warm
good "$wiredtiger/bin/wt" -h "$dir/ycsb" -C 'log=(enabled,path=journal)' verify table:usertable
good "$ycsb" -r 2000 -t 1 "$dir/small" load
good "$wiredtiger/bin/wt" -h "$dir/small" -C 'log=(enabled,path=journal)' dump -x table:usertable
sed '1,/^Data/d' "$work/output" | sha256sum | said dumped

# Commits that were waited for.
for _ in 1 ${long:+2 3 4 5}; do
    start "$ycsb" -r 1000 -y commit -s 600 -k 1 -v "$dir/killed" load a
    until_it_is grep -q '^load  *all  *1000 ' "$work/server"
    sleep 1
    murder
    good "$ycsb" -r 1000 "$dir/killed" check
done

good mkdir "$dir/wtperf"
count=${long:+10}20000
good "$wiredtiger/bin/wtperf" -h "$dir/wtperf" -O "$wiredtiger/runners/500m-btree-populate.wtperf" -C cache_size=10M \
    -o "icount=$count,populate_threads=2,compression=none,report_interval=1,sample_interval=1"
good "$wiredtiger/bin/wtperf" -h "$dir/wtperf" -O "$wiredtiger/runners/500m-btree-50r50u.wtperf" -C cache_size=10M \
    -o "icount=$count,run_time=${long:+1}2,warmup=0,compression=none,report_interval=1,sample_interval=1"
good grep 'Executed [1-9][0-9]* update' "$dir/wtperf/test.stat"

# It writes as fast as it can.
good rm -r "$dir/ycsb" "$dir/wtperf"
# A child of the test is killed; its parent recovers what the child had written down.
good_in "$dir" "$wiredtiger/bin/test_random_abort" -h abort -T 3 -t "${long:+1}2"
said "$(grep -c 'Kill child' "$work/output") killed"
[ -z "$long" ] || {
    good_in "$dir" "$wiredtiger/bin/test_random_abort" -h abort -T 5 -t 10 -m
    good_in "$dir" "$wiredtiger/bin/test_random_abort" -h abort -T 5 -t 10 -C
    good_in "$dir" "$wiredtiger/bin/test_timestamp_abort" -h timestamps -T 5 -t 10
}
