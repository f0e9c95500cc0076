# shellcheck shell=sh disable=SC2154,SC2034
# PostgreSQL: many processes that share files. Its benchmark, killed, recovered, and its own programs that
# check what it has written.
postgres=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
needs "${postgres:-/usr/lib/postgresql}/initdb" "$postgres/pgbench" "$postgres/pg_amcheck" setpriv

# It does not run as root.
[ "$(id -u)" -ne 0 ] || user=postgres
shared=--shared
socket=$work/postgres
rm -rf "$socket"
mkdir "$socket"
if [ -n "$user" ]; then
    chown "$user" "$socket" "$dir"
    [ "$side" = native ] || make_device
fi
data=$dir/data
export PGHOST="$socket" PGUSER=postgres PGDATABASE=postgres

# A program of its own that asks the server, and has no files here.
ask() {
    steps=$((steps + 1))
    timeout 600 "$@" >"$work/output" 2>&1 || fail "failed: $*"
}

sql() {
    ask "$postgres/psql" -X -A -t -q -v ON_ERROR_STOP=1 -c "$1"
}

start_postgres() {
    start "$postgres/postgres" -D "$data" -k "$socket" -h '' -c shared_buffers=16MB -c max_wal_size=64MB \
        -c checkpoint_timeout=30s -c autovacuum_naptime=1s -c log_min_messages=warning
    until_it_is "$postgres/pg_isready" -q
}

stop_postgres() {
    # shellcheck disable=SC2046
    kill -INT $(pgrep -o -f "^$postgres/postgres -D $data") || fail 'there is no postmaster'
    ended
}

# What every transaction of pgbench leaves alone.
sums() {
    sql 'select (select sum(abalance) from pgbench_accounts) = d, (select sum(tbalance) from pgbench_tellers) = d,
        (select sum(bbalance) from pgbench_branches) = d from (select coalesce(sum(delta), 0) d from pgbench_history) s'
    says '^t\|t\|t$'
}

good "$postgres/initdb" -D "$data" -U postgres -A trust --data-checksums --locale=C -E UTF8
start_postgres
ask "$postgres/pgbench" -i -q -s "${long:+1}1"
ask "$postgres/pgbench" -n -c 4 -j 2 -t "${long:+10}100"
sums
sql "create table t as select i, md5(i::text) m, repeat(md5((i*7)::text), 90) r from generate_series(1, 5000) i;
    create index on t(m); create index on t using hash(i); update t set m = md5(m) where i % 3 = 0"
sql 'vacuum analyze t'
sql "copy (select * from t order by i) to '$data/copied'; create table u(like t); copy u from '$data/copied';
    select md5(string_agg(m || r, '' order by i)), count(*) from u"
said <"$work/output"
sql "select pg_relation_size('t'), pg_relation_size('pgbench_accounts_pkey')"
said <"$work/output"

for _ in 1 ${long:+2 3 4 5}; do
    timeout 600 "$postgres/pgbench" -n -c 4 -j 2 -T 300 >"$work/load" 2>&1 &
    load=$!
    sql 'select count(*) from pgbench_history'
    enough=$(($(cat "$work/output") + 200))
    has_done_enough() { [ "$("$postgres/psql" -X -A -t -c 'select count(*) from pgbench_history')" -ge "$enough" ]; }
    until_it_is has_done_enough
    murder
    wait "$load" 2>/dev/null || true
    start_postgres
    sums
    sql "select count(*) >= $enough from pgbench_history"
    says '^t$'
done
sql "select md5(string_agg(m || r, '' order by i)), count(*) from t"
said <"$work/output"
ask "$postgres/pg_amcheck" --all --install-missing --heapallindexed
ask "$postgres/pg_dump" -t t
grep -v '^--\|restrict' "$work/output" | sha256sum | said
stop_postgres
good "$postgres/pg_checksums" --check -D "$data"
says '^Bad checksums: *0$'
