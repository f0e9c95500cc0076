# shellcheck shell=sh disable=SC2154
# MariaDB: InnoDB with the kernel's asynchronous I/O, which it has to be refused for files that are ours, and
# without; Aria beside it; transfers between accounts that are killed in the middle.
needs mariadb-install-db mariadbd mariadb mariadb-admin

socket=$work/mariadb.sock
data=$dir/maria

sql() {
    steps=$((steps + 1))
    timeout 600 mariadb --no-defaults -S "$socket" -u root -N -B ${3:+"--delimiter=$3"} -e "$1" ${2:+"$2"} >"$work/output" 2>&1 ||
        fail "failed: $1"
}

start_mariadb() {
    start mariadbd --no-defaults --datadir="$data" --socket="$socket" --skip-networking --user=root \
        --pid-file="$work/mariadb.pid" --innodb-buffer-pool-size=16M --innodb-log-file-size=16M \
        --innodb-flush-log-at-trx-commit=1 --innodb-fast-shutdown=0 "$@"
    until_it_is mariadb-admin --no-defaults -S "$socket" -u root ping
}

stop_mariadb() {
    mariadb-admin --no-defaults -S "$socket" -u root shutdown >"$work/output" 2>&1 || fail 'it does not end'
    ended
}

checked() {
    sql 'check table accounts, transfers, wide, other extended' bank
    [ "$(grep -c 'status.OK$' "$work/output")" -eq 4 ] || fail 'a table is not in order'
    sql 'select sum(balance) from accounts; select count(*) from other; select sum(length(b)), bit_xor(crc32(b)) from wide' bank
    said <"$work/output"
}

good mariadb-install-db --no-defaults --datadir="$data" --auth-root-authentication-method=normal --skip-test-db \
    --user=root
start_mariadb
sql 'create database bank'
sql "create table accounts(id int primary key, balance bigint not null) engine=innodb;
    create table transfers(id bigint auto_increment primary key, a int, b int, amount int, note varchar(200), key(a), key(b))
        engine=innodb;
    create table wide(id int primary key, b longblob) engine=innodb row_format=compressed;
    create table other(id int primary key, word varchar(80), fulltext(word)) engine=aria;
    insert into accounts select seq, 1000 from seq_1_to_1000;
    insert into wide select seq, repeat(md5(seq), 1000) from seq_1_to_${long:+10}100;
    insert into other select seq, concat(md5(seq), ' ', md5(seq * 3)) from seq_1_to_${long:+10}1000" bank
sql "create procedure transfer(times int, start int) begin
        declare i int default 0;
        while i < times do
            set @a = 1 + (start + i * 7919) % 1000, @b = 1 + (start + i * 104729 + 500) % 1000;
            start transaction;
            update accounts set balance = balance - 7 where id = least(@a, @b);
            update accounts set balance = balance + 7 where id = greatest(@a, @b);
            insert into transfers(a, b, amount, note) values(@a, @b, 7, repeat(md5(i), 5));
            commit;
            set i = i + 1;
        end while;
    end" bank //
sql "call transfer(${long:+10}300, 1)" bank
checked
sql "select count(*), sum(a), sum(b) from transfers; alter table wide add column c int default 5; optimize table transfers;
    truncate table other; insert into other select seq, md5(seq) from seq_1_to_500; select sum(c) from wide" bank
grep -v 'optimize\|recreate' "$work/output" | said
stop_mariadb

for aio in 0 1 ${long:+0 1}; do
    start_mariadb --innodb-use-native-aio="$aio"
    sql 'select count(*) from transfers' bank
    enough=$(($(cat "$work/output") + 150))
    loads=
    for start in 1 250; do
        mariadb --no-defaults -S "$socket" -u root -e "call transfer(1000000, $start)" bank >"$work/load.$start" 2>&1 &
        loads="$loads $!"
    done
    has_done_enough() {
        [ "$(mariadb --no-defaults -S "$socket" -u root -N -B -e 'select count(*) from transfers' bank)" -ge "$enough" ]
    }
    until_it_is has_done_enough
    murder
    for load in $loads; do wait "$load" 2>/dev/null || true; done
    start_mariadb --innodb-use-native-aio="$aio"
    checked
    sql "select count(*) >= $enough from transfers" bank
    [ "$(cat "$work/output")" = 1 ] || fail 'what was committed is not there'
    stop_mariadb
done
good aria_chk --no-defaults --silent --check "$data/bank/other"
