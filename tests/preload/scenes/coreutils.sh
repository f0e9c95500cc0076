# The everyday programs for files.
# shellcheck shell=bash disable=SC1091,SC2012,SC2035,SC2002,SC2018,SC2019,SC2094,SC1014,SC2320,SC2319
set -u
LC_ALL=C
export LC_ALL TZ=UTC
mkdir coreutils && cd coreutils || exit 1
look() { # PATH: everything below, without what differs between file systems
    find "$1" -printf '%P %y %m %n %u:%g %l ' \( -type f -printf '%s %TY%Tm%Td\n' -o -printf '\n' \) | sed 's/^\([^ ]*\) d \([0-7]*\) [0-9]*/\1 d \2/' | sort
}
cp -a "$SOURCE/docs" docs
diff -r "$SOURCE/docs" docs && echo 'cp -a is right'
[ "$(cd "$SOURCE" && find docs -type f | wc -l)" = "$(find docs -type f | wc -l)" ] && echo 'as many files'
mkdir tree tree/a tree/b && echo 1 >tree/a/1 && ln tree/a/1 tree/b/hard && ln -s ../a/1 tree/b/soft && mkfifo tree/fifo
head -c 100000 /dev/urandom >tree/random && truncate -s 5M tree/sparse && chmod 4711 tree/a/1 && touch -d 2010-03-04T05:06:07.123456789 tree/b/soft tree/random tree/sparse
cp -a tree copied && look copied >one && look tree >two && diff one two && echo 'a copy is the same' && cat one | grep -v random
stat -c '%n %F %a %h %s %y' tree/random tree/sparse tree/fifo tree/a/1 | sed 's/[0-9][0-9][0-9][0-9]-.*//'
stat -c '%y' tree/random
cp --sparse=always tree/sparse s2 && [ "$(stat -c %b s2)" -eq 0 ] && echo 'sparse'
cp --reflink=auto tree/random r2 && cmp tree/random r2 && echo 'the same'
mv copied moved && look moved | diff - two && echo 'moved'
mv moved "$OUTSIDE/moved.$$" && look "$OUTSIDE/moved.$$" | diff - two && echo 'moved out'
mv "$OUTSIDE/moved.$$" back && look back | diff - two && echo 'moved in'
rm -r back && ls
ls -la tree | awk '{print $1, $3, $4, $9}' | sed 's/^total.*/total/' | sort
ls -R docs | sort | cksum
ls -S docs | head -n 3
ls -t tree/random tree/sparse
find . -type f -name '*.md' | sort | head -n 5
find tree -links 2 -type f | sort
find tree -newer tree/random -type f | sort
find tree -perm -4000 | sort
find . -size +90k -type f | sort
find tree -exec test -d {} \; -print | sort
find docs -name '*.md' -print0 | sort -z | xargs -0 cat | md5sum
du -s --apparent-size docs >/dev/null && du -a tree | wc -l
sort "$SOURCE/Makefile" >sorted && sort -c sorted && sort -u -o sorted sorted && wc sorted
sort -S 32k -T . "$SOURCE/Cargo.lock" | md5sum
dd if=tree/random of=dd bs=1000 count=50 skip=3 seek=2 conv=notrunc,fsync 2>/dev/null && stat -c %s dd
dd if=/dev/zero of=dd bs=4096 count=2 oflag=append conv=notrunc 2>/dev/null && stat -c %s dd
dd if=dd bs=512 skip=4 count=1 iflag=fullblock 2>/dev/null | cmp - <(dd if=tree/random bs=1 skip=3048 count=512 2>/dev/null) 2>/dev/null
dd if=/dev/zero of=direct bs=4096 count=16 oflag=direct 2>/dev/null && stat -c %s direct
truncate -s 1000 dd && truncate -s +24 dd && stat -c %s dd
touch -d '2020-02-02 02:02:02' dated && touch -r dated dated2 && stat -c %y dated2 && touch -a -d 1999-01-01 dated && stat -c '%x %y' dated && date -r dated2 +%s
ln dated hard && ln -s dated soft && ln -sf docs soft2 && ln -T soft soft3 && readlink soft soft3 && readlink -f soft2/../dated | sed 's|.*/||' && realpath --relative-to=. tree/b/soft
ln dated hard
install -D -m 640 dated in/stall/ed && stat -c '%a %s' in/stall/ed && install -d -m 711 x/y && stat -c %a x/y
split -b 30000 tree/random part. && cat part.* | cmp - tree/random && ls part.* && csplit -s "$SOURCE/Makefile" 10 20 && wc -l xx0*
tac "$SOURCE/Makefile" | tac | cmp - "$SOURCE/Makefile" && nl sorted | tail -n 1 && tail -c 20 sorted && head -c 30 sorted && tail -n +3 sorted | md5sum
md5sum tree/random sorted >/dev/null && sha256sum sorted >sums && sha256sum -c sums && cksum sorted && b2sum sorted | cut -c1-16
comm -12 sorted sorted | wc -l && join sorted sorted 2>/dev/null | wc -l && uniq -c sorted | wc -l && paste sorted sorted | cut -c1-10 | md5sum && tr a-z A-Z <sorted | md5sum && fold -w 20 sorted | wc -l && expand sorted | md5sum
shuf -n 3 sorted | wc -l && shred -u -n 1 hard && ls hard 2>&1
chmod -R u+rwX,go-w tree && chmod a+x sorted && chmod g+s x && stat -c %a sorted x
mkdir -p p/q/r && rmdir -p p/q/r && ls p 2>&1
rm -rf tree docs && rm none 2>&1
rmdir in 2>&1
mktemp -p . tXXXXXX >/dev/null && mktemp -d -p . dXXXXXX >/dev/null && ls -d t[0-9A-Za-z]* d[0-9A-Za-z][0-9A-Za-z]?????? 2>/dev/null | wc -l
sync && sync -f . && sync dated && df . | tail -n 1 | wc -l
tee a b c <sums >/dev/null && cmp a b && cmp b c && echo 'tee'
timeout 5 tail -f sums --pid=$$ -n 1 -s 0.1 &
sleep 0.5 && kill $! && wait 2>/dev/null
cat sums - <sums | wc -l
test -r sums -a -w sums && [ -O sums ] && echo 'mine'
printf 'wide \303\251\n\342\202\254\n' >wide && rev wide && LC_ALL=C.UTF-8 rev <wide >back && LC_ALL=C.UTF-8 rev back | cmp - wide && rev wide | rev | cmp - wide
pathchk sums && namei sums | tail -n 1 | awk '{print $1}'
look . | grep -v -E 'random|^[td][0-9A-Za-z]{6} |Makefile|sorted|part|xx' | md5sum
