# Archives and copies of trees: there and back, with links, holes, times and extended attributes.
# shellcheck shell=bash disable=SC1091,SC2012,SC2035,SC2002,SC2018,SC2019,SC2094,SC1014,SC2320,SC2319
set -u
LC_ALL=C
export LC_ALL TZ=UTC
mkdir archives && cd archives || exit 1
look() {
    (cd "$1" && find . -printf '%P %y %m %u:%g %l ' \( -type f -printf '%n %s %T+\n' -o -printf '\n' \) | sort && find . -type f -print0 | sort -z | xargs -0 cksum)
}
mkdir tree && cp -r "$SOURCE/crates/spec" "$SOURCE/docs" tree/
cd tree && ln docs/testing.md hard && ln -s docs soft && ln -s nowhere dangling && mkfifo fifo && mkdir -m 1700 sticky && truncate -s 3M sparse && echo end >>sparse
setfattr -n user.colour -v blue hard && setfattr -n user.empty -v '' docs
chmod 751 docs && touch -d 1980-05-06T07:08:09.5 docs/testing.md && cd ..
look tree >before
tar -H posix -cf all.tar tree && tar -df all.tar && echo 'tar -d'
mkdir out && tar -C out -xpf all.tar && look out/tree | diff before - && echo 'tar'
tar -H posix --xattrs --sparse -czf all.tar.gz tree && mkdir out2 && tar --xattrs -C out2 -xzpf all.tar.gz && look out2/tree | diff before - && echo 'tar.gz'
getfattr -d out2/tree/hard 2>/dev/null | grep colour
tar -C out -cf - tree | tar -tf - | sort | cksum
tar --xattrs -rf all.tar -C "$SOURCE" Makefile && tar -xOf all.tar Makefile | cmp - "$SOURCE/Makefile" && echo 'appended'
tar --delete -f all.tar Makefile && tar -tf all.tar | grep -c Makefile
xz -k -0 all.tar && xz -dc all.tar.xz | cmp - all.tar && echo 'xz'
gzip -k all.tar && gunzip -c all.tar.gz >unzipped && cmp unzipped all.tar && echo 'gzip'
(cd tree && find . | sort | cpio -o --quiet) >all.cpio 2>/dev/null && mkdir out3 && (cd out3 && cpio -idm --quiet) <all.cpio && diff -r --no-dereference tree/docs out3/docs && echo 'cpio'
if command -v rsync >/dev/null; then
    rsync -aHX tree/ synced/ && look synced | diff before - && echo more >>tree/docs/testing.md && rsync -aHX --delete tree/ synced/ && cmp tree/docs/testing.md synced/docs/testing.md && echo 'rsync'
    rsync -a --inplace --no-whole-file tree/sparse synced/sparse && echo 'in place'
fi
if command -v zip >/dev/null; then
    (cd tree && zip -qry ../all.zip docs soft hard) && mkdir out4 && (cd out4 && python3 -m zipfile -e ../all.zip . && ls | sort)
fi
# Out of the folder, and into it.
tar -cf - tree/docs | tar -C "$OUTSIDE" -xf - && diff -r tree/docs "$OUTSIDE/tree/docs" && tar -C "$OUTSIDE" -cf - tree | tar -tf - | wc -l && rm -r "$OUTSIDE/tree"
diff -r out/tree/spec out2/tree/spec && echo 'all the same'
rm -r out out2 out3 && ls
