# shellcheck shell=sh disable=SC2154
# Redis: an append-only file synced always and every second, a snapshot written by a fork, a rewrite of the
# append-only file beside the one that grows, killed, and its own programs that check what it has written.
needs redis-server redis-cli redis-check-aof redis-check-rdb

keys=${long:+10}4000
socket=$work/redis.sock

redis() {
    redis-cli -s "$socket" "$@"
}

redis_is_ready() {
    [ "$(redis ping)" = PONG ]
}

start_redis() {
    start redis-server --port 0 --unixsocket "$socket" --dir "$dir/redis" --save '' --enable-debug-command yes \
        --loglevel notice --aof-use-rdb-preamble yes --auto-aof-rewrite-percentage 0 "$@"
    until_it_is redis_is_ready
}

# What all of its data comes to.
digest() {
    redis debug digest
}

stop_redis() {
    redis shutdown "$@" >"$work/output" 2>&1 || true
    ended
}

awk -v keys="$keys" 'BEGIN {
    for (i = 1; i <= keys; i++) {
        printf "SET key:%d value:%d:%0200d\n", i, i * 7919 % 104729, i
        if (i % 2 == 0) printf "LPUSH list:%d %d %d\n", i % 50, i, i * 3
        if (i % 3 == 0) printf "HSET hash:%d field:%d %d\n", i % 70, i, i
        if (i % 5 == 0) printf "ZADD sorted:%d %d member:%d\n", i % 20, i * 31 % 1009, i
        if (i % 7 == 0) printf "DEL key:%d\n", i - 3
        if (i % 11 == 0) printf "APPEND key:%d more\n", i
    }
}' >"$work/commands"

good mkdir "$dir/redis"
start_redis --appendonly yes --appendfsync always
redis <"$work/commands" >"$work/output"
redis bgsave >/dev/null
# The parent serves while its child writes.
redis set while:saving 1 >"$work/output"
saved() { redis info persistence | tr -d '\r' | grep -q '^rdb_bgsave_in_progress:0'; }
until_it_is saved
redis info persistence | tr -d '\r' | grep -E '^rdb_last_bgsave_status' | said
digested=$(digest)
said "loaded: $digested"
murder

start_redis --appendonly yes --appendfsync always
[ "$(digest)" = "$digested" ] || fail 'it is not what it was before it was killed'
redis bgrewriteaof >/dev/null
redis set while:rewriting 1 >"$work/output"
rewritten() { redis info persistence | tr -d '\r' | grep -q '^aof_rewrite_in_progress:0' &&
    redis info persistence | tr -d '\r' | grep -q '^aof_rewrite_scheduled:0'; }
until_it_is rewritten
redis info persistence | tr -d '\r' | grep -E '^aof_last_bgrewrite_status' | said
redis set after:rewriting 1 >"$work/output"
digested=$(digest)
murder
start_redis --appendonly yes --appendfsync always
[ "$(digest)" = "$digested" ] || fail 'it is not what it was before it was killed behind a rewrite'
said "rewritten: $digested"
stop_redis

good_in "$dir/redis" redis-check-aof appendonlydir/appendonly.aof.manifest
says 'All AOF files and manifest are valid'
good redis-check-rdb "$dir/redis/dump.rdb"
says 'RDB looks OK'

# Every second: of keys that were set one after the other the first ones are there.
good mkdir "$dir/second"
start_redis --dir "$dir/second" --appendonly yes --appendfsync everysec
awk -v keys=$((keys * 4)) 'BEGIN { for (i = 1; i <= keys; i++) printf "SET k%d %0300d\n", i, i }' >"$work/commands"
redis <"$work/commands" >"$work/output" 2>&1 &
setter=$!
set_enough() { [ "$(redis dbsize)" -gt 1000 ]; }
until_it_is set_enough
murder
wait "$setter" 2>/dev/null || true
start_redis --dir "$dir/second" --appendonly yes --appendfsync everysec
size=$(redis dbsize)
[ "$size" -eq 0 ] || [ "$(redis get "k$size" | sed 's/^0*//')" = "$size" ] || fail "of $size keys not the first ones"
stop_redis

# Snapshots alone: written by a child, and by the server when it ends.
start_redis --appendonly no
said "from a snapshot: $(digest)"
redis <"$work/commands" >"$work/output"
digested=$(digest)
stop_redis save
start_redis --appendonly no
[ "$(digest)" = "$digested" ] || fail 'a snapshot at the end is not what was there'
said "from another: $digested"
stop_redis nosave
