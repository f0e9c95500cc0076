# SQLite: each way to keep a journal, several at once, a backup, vacuum.
# shellcheck shell=bash disable=SC1091,SC2012,SC2035,SC2002,SC2018,SC2019,SC2094,SC1014,SC2320,SC2319
set -u
export HOME="$PWD"
mkdir sqlite && cd sqlite || exit 1
sql() { sqlite3 -batch -bail -cmd '.timeout 120000' "$@"; }
rows='with recursive c(x) as (select 1 union all select x+1 from c where x<2000) select x, hex(x*7919), x%17 from c'
for journal in delete truncate persist memory wal off; do
    sql "$journal.db" "pragma journal_mode=$journal; pragma synchronous=full; create table t(a integer primary key, b, c); insert into t $rows; create index i on t(c); update t set b=b||'x' where c=3; delete from t where a%5=0; begin; delete from t where a<500; rollback; select count(*), sum(a), sum(c) from t; pragma integrity_check;"
    sql "$journal.db" "select count(*), sum(a) from t where c between 4 and 9; vacuum; pragma integrity_check; select group_concat(b) from (select b from t where c=3 order by a limit 5);"
done
ls
sql wal.db "pragma mmap_size=268435456; select sum(length(b)) from t; update t set b='mapped' where a<100; pragma wal_checkpoint(truncate); select count(*) from t where b='mapped';"
sql wal.db ".backup copy.db" && sql copy.db "pragma integrity_check; select count(*) from t;"
sql wal.db ".dump" | sql dumped.db && sql dumped.db "select count(*) from t; attach 'copy.db' as o; select count(*) from (select * from t except select * from o.t);"
for writer in 1 2 3 4; do
    (for n in 1 2 3 4 5 6 7 8 9 10; do sql wal.db "insert into t(b, c) values('writer $writer', $n);" || exit 1; done) &
done
wait
sql wal.db "select count(*) from t where b like 'writer%'; pragma integrity_check;"
for writer in 1 2 3; do
    (for n in 1 2 3 4 5; do sql delete.db "insert into t(b, c) values('writer $writer', $n);" || exit 1; done) &
done
wait
sql delete.db "select count(*) from t where b like 'writer%'; pragma integrity_check; pragma journal_mode=wal; select count(*) from t;"
sql :memory: "attach 'new.db' as n; create table n.x(a); insert into n.x values(1),(2); select sum(a) from n.x;"
sql big.db "pragma page_size=65536; pragma cache_size=10; create table b(d blob); insert into b select randomblob(100000) from (with recursive c(x) as (select 1 union all select x+1 from c where x<40) select x from c); select sum(length(d)) from b; delete from b where rowid%2; pragma incremental_vacuum; pragma integrity_check;"
sql fts.db "create virtual table f using fts5(t); insert into f select 'word'||(a%10)||' other'||a from (with recursive c(a) as (select 1 union all select a+1 from c where a<500) select a from c); select count(*) from f where f match 'word3'; insert into f(f) values('optimize'); pragma integrity_check;"
