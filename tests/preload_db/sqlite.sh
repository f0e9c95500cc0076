# shellcheck shell=sh disable=SC2154
# SQLite: its benchmark, with what it checks; its own tests; writers beside each other; one that is killed.
needs sqlite3 "$speedtest/speedtest1" "$fs_tools/bin/testfixture"

for options in '--journal delete' '--journal wal' '--journal truncate --mmap 100000000' '--journal wal --autovacuum'; do
    # shellcheck disable=SC2086
    good "$speedtest/speedtest1" --size "${long:+10}5" --verify $options "$dir/speed"
    said "$options: $(grep 'Verification Hash' "$work/output")"
    good rm "$dir/speed"
done

sqlite_tests='lock wal wal5 savepoint crash8 mmap1'
[ -z "$long" ] || sqlite_tests="$sqlite_tests lock2 lock3 lock4 lock5 lock6 lock7 crash crash2 crash3 crash4 crash5 crash6
    crash7 wal3 walcrash walcrash2 walcrash3 walcrash4 waloverwrite walpersist walshared pager2 savepoint2 io ioerr
    journal1 journal2 journal3 mmap2 mmap3 exclusive exclusive2 shared_err bigfile backup atomic superlock tempdb
    incrvacuum"
good mkdir "$dir/tests"
for test in $sqlite_tests; do
    good_in "$dir/tests" "$fs_tools/bin/testfixture" "$fs_tools/sqlite/test/$test.test"
    says '^0 errors out of [0-9]+ tests'
    case $test in
    # How many of them there are depends on chance.
    *crash*) said "$test: 0 errors" ;;
    *) said "$test: $(grep '^0 errors' "$work/output")" ;;
    esac
done

base=$dir/base
for journal in delete wal; do
    good sqlite3 "$base" "pragma journal_mode=$journal; create table if not exists t(a integer primary key, who text, b blob)"
    # Three of them, each a process of its own.
    children=
    for who in 1 2 3; do
        on sqlite3 -cmd '.timeout 300000' "$base" "with recursive c(x) as
            (select 1 union all select x+1 from c where x<200) insert into t(who,b) select '$journal$who', randomblob(700) from c" \
            >"$work/output.$who" 2>&1 &
        children="$children $!"
    done
    for child in $children; do
        wait "$child" || {
            cat "$work"/output.[123] >"$work/output"
            fail "one of three writers has failed, journal $journal"
        }
    done
    good sqlite3 -cmd '.timeout 300000' "$base" 'select who, count(*), sum(length(b)) from t group by who; pragma integrity_check'
    said <"$work/output"

    # What it has said to be there is there. Its output is in blocks: so each line is long.
    {
        echo 'pragma synchronous=full;'
        i=0
        while [ $i -lt 20000 ]; do
            i=$((i + 1))
            echo "insert into t(who,b) values('killed$journal',randomblob(3000)); select count(*), hex(zeroblob(200)) from t where who='killed$journal';"
        done
    } >"$work/inserts"
    # shellcheck disable=SC2016
    start sh -c 'exec sqlite3 -cmd ".timeout 300000" "$1" <"$2"' sh "$base" "$work/inserts"
    until_it_is grep -q '^40|' "$work/server"
    murder
    promised=$(grep -E '^[0-9]+\|0{400}$' "$work/server" | tail -n 1 | cut -d'|' -f1)
    good sqlite3 -cmd '.timeout 300000' "$base" "pragma integrity_check; select count(*) >= $promised from t where who='killed$journal'"
    said <"$work/output"
    good sqlite3 -cmd '.timeout 300000' "$base" "delete from t where who='killed$journal'; vacuum; select count(*) from t"
    said <"$work/output"
done
