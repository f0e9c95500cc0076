#!/bin/sh
# Builds fio's engine for unvme against the fio that is installed: `make fio`.
#
#   scripts/fio.sh FOLDER ARCHIVE    FOLDER/fio-unvme.so, with libunvme.a from ARCHIVE inside
#
# An engine is compiled with the headers of the very fio that loads it, which no package has. They are taken
# from FIO_SRC, an unpacked source of fio, if that is set; else from the source package of the installed fio,
# which is fetched once, into FOLDER, from where the system has its packages.
set -eu

folder=$1
archive=$2
root=$(cd "$(dirname "$0")/.." && pwd)
FIO=${FIO:-fio}
CC=${CC:-cc}
# Versions that the tests have run with.
TRIED='3.33'

fail() {
    echo "fio: $*" >&2
    exit 1
}

command -v "$FIO" >/dev/null 2>&1 || fail "there is no program \`$FIO\`; install it (sudo apt-get install fio), or give its path: make fio FIO=/path/to/fio"
version=$("$FIO" --version 2>/dev/null | sed -n 's/^fio-\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
[ -n "$version" ] || fail "\`$FIO --version\` does not say fio-MAJOR.MINOR"
mkdir -p "$folder"

# Fetches the source package of the installed fio, and unpacks it to "$1".
fetch() {
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-query >/dev/null 2>&1 ||
        fail "the headers of fio $version are needed: get its source and give the folder, make fio FIO_SRC=/path/to/fio-$version"
    package=$(dpkg-query -S "$(readlink -f "$(command -v "$FIO")")" 2>/dev/null | cut -d: -f1) || true
    [ -n "$package" ] ||
        fail "$(command -v "$FIO") is of no package: give the source it was built from, make fio FIO_SRC=/path/to/fio-$version"
    source=$(dpkg-query -W -f '${source:Package}=${source:Version}' "$package")
    "$root/scripts/package-source.sh" "$1" "$source" ||
        fail "give the source of fio, make fio FIO_SRC=/path/to/fio-$version"
}

source_folder=${FIO_SRC:-}
if [ -z "$source_folder" ]; then
    source_folder=$folder/fio-$version
    if [ ! -f "$source_folder/ioengines.h" ]; then
        echo "fio: fetching the headers of fio $version"
        fetch "$source_folder"
    fi
fi
[ -f "$source_folder/ioengines.h" ] || fail "$source_folder is not an unpacked source of fio: it has no ioengines.h"
found=$(sed -n 's/^DEF_VER=fio-\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p' "$source_folder/FIO-VERSION-GEN")
[ "$found" = "$version" ] ||
    fail "$source_folder is the source of fio ${found:-of an unknown version}, and $FIO is $version: an engine works with one version only"

case " $TRIED " in
*" $version "*) ;;
*) echo "fio: nobody has tried the engine with fio $version yet (tried: $TRIED)" ;;
esac

placement=
[ ! -f "$source_folder/dataplacement.h" ] || placement=-DUNVME_FIO_HAS_DATAPLACEMENT
# shellcheck disable=SC2086
$CC -std=gnu11 -O2 -g -fPIC -shared -D_GNU_SOURCE ${CFLAGS-} -Wall -Wextra -Werror -Wno-unused-parameter \
    -Wno-sign-compare -Wno-missing-field-initializers -include "$root/plugins/fio/config-host.h" \
    -DUNVME_FIO_MAJOR="${version%%.*}" -DUNVME_FIO_MINOR="${version#*.}" $placement -isystem "$source_folder" \
    -I"$root/crates/capi/include" -o "$folder/fio-unvme.so.new" "$root/plugins/fio/unvme.c" "$archive" \
    -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--gc-sections \
    -lgcc_s -lutil -lrt -lpthread -lm -ldl
mv "$folder/fio-unvme.so.new" "$folder/fio-unvme.so"
# By the name alone, where the folder is in LD_LIBRARY_PATH; and by that of the uNVMe SDK's plugin.
ln -sf fio-unvme.so "$folder/unvme"
ln -sf fio-unvme.so "$folder/unvme2_fio_plugin"
echo "fio: $folder/fio-unvme.so, for fio $version"
