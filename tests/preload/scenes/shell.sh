# What shells do: redirections, here documents, pipes, globs, loops, tests, traps. Run by sh and by bash.
# shellcheck shell=bash disable=SC1091,SC2012,SC2035,SC2002,SC2018,SC2019,SC2094,SC1014,SC2320,SC2319
set -u
mkdir shell && cd shell || exit 1
echo one >file
echo two >>file
cat <file
printf 'three\n' | cat >>file
wc -l <file | tr -d ' '
{
    echo in a group
    echo to the error output >&2
} >group 2>&1
cat group
(cd .. && pwd | sed 's|.*/||')
cat >document <<END
a document of $((2 + 3)) words
END
read -r line <document && echo "read: $line"
while read -r word; do echo "[$word]"; done <file
exec 5>by_number 6<file
echo 'by number' >&5
read -r line <&6 && echo "first: $line"
read -r line <&6 && echo "second: $line"
exec 5>&- 6<&-
cat by_number
exec 7<>both && echo 'both ways' >&7 && exec 7>&- && cat both
set -C
(echo no >file) 2>/dev/null || echo 'noclobber'
echo yes >|file
set +C
for i in 1 2 3 4 5 6 7 8 9; do echo "$i" >"n$i.txt"; done
echo n*.txt
echo n[3-5].txt ./n?.t*t
for f in *.txt; do [ -s "$f" ] && [ -f "$f" ] && ! [ -d "$f" ] || echo "$f is odd"; done
mkdir -p deep/er/est && echo found >deep/er/est/file
cd deep/er/est && cat file && cd ../.. && cat er/est/file && cd ..
pwd | sed 's|.*/||'
[ deep -ef ./deep ] && echo 'the same folder'
touch -d '2001-01-01' old && [ file -nt old ] && [ old -ot file ] && echo 'older'
ln -s file link && [ -L link ] && [ -e link ] && cat link
rm file && [ -L link ] && [ ! -e link ] && echo 'dangling'
seq 1000 | sort -r | head -n 3
seq 200000 >large && wc -c <large | tr -d ' ' && tail -n 1 large
(sleep 0.2; echo late >late) &
wait && cat late
umask 077 && : >private && ls -l private | cut -c1-10
umask 022
if echo x >none/file; then echo 'written?'; else echo "not written: $?"; fi 2>/dev/null
cat none 2>&1
trap 'echo ended >trapped' EXIT
sh -c 'echo "$0 $1" >args' a b && cat args
eval 'echo evaluated >evaluated' && cat evaluated
printf '#!/bin/sh\necho "a script with $#: $*"\n' >script && chmod 755 script
sh ./script 1 2
./script 3 4 5
. ./script
printf '#!/bin/sh -e\necho "$0: $#: $*"\n' >named && chmod 755 named
./named 1 2 && "$PWD/named" 3 | sed "s|$PWD|HERE|" && PATH=$PWD:$PATH named 4 | sed "s|$PWD|HERE|"
cp /bin/cat concatenate && printf '#!%s/concatenate\nshown by a program that is here\n' "$PWD" >shown && chmod 755 shown
./shown | tail -n 1 && printf '#!%s/shown\nby a script of a script\n' "$PWD" >twice && chmod 755 twice && ./twice | tail -n 1
printf '#!/none/interpreter\n' >wrong && chmod 755 wrong && { ./wrong 2>/dev/null || echo "no interpreter: $?"; }
printf 'echo "without a first line: $*"\n' >plain && chmod 755 plain && ./plain 5 && env ./plain 6
cp "$(command -v readlink)" reader && ./reader /proc/self/exe | sed "s|$PWD|HERE|"
cat /dev/stdin <named | head -n 1
{ echo both | tee /dev/stderr; } >first 2>second && cat first second
exec 8>numbered && echo 'by its number' >/dev/fd/8 && exec 8>&- && cat numbered
yes | head -c 100000 | tee copy | cksum
cmp copy copy && cksum <copy
