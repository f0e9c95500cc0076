#!/bin/sh
# Draws the pictures of the documents again.
#
#   scripts/pictures.sh [path of unvme, default target/release/unvme]
#
set -eu
cd "$(dirname "$0")/.."
unvme=${1:-target/release/unvme}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p docs/pictures
# The sweep over utilisations, and the two curves of a full device.
"$unvme" sim --recipe cachelib --util 50,60,70,80,90,100 --pictures "$scratch"
mv "$scratch/cachelib-sweep.svg" docs/pictures/
for recipe in cachelib rocksdb; do
    full=100
    [ "$recipe" = rocksdb ] && full=80
    "$unvme" sim --recipe "$recipe" --util "$full" --pictures "$scratch"
    mv "$scratch/$recipe-waf.svg" docs/pictures/
done
