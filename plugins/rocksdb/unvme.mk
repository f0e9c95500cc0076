# For `ROCKSDB_PLUGINS=unvme make` in RocksDB's tree, where this folder is plugin/unvme. The C library is found by
# pkg-config.

unvme_SOURCES = text.cc uri.cc mount.cc guide.cc files.cc log.cc fs_unvme.cc
unvme_HEADERS = fs_unvme.h
unvme_CXXFLAGS = $(shell pkg-config --cflags unvme)
unvme_LDFLAGS = $(shell pkg-config --libs unvme) -u unvme_filesystem_reg
unvme_FUNC =
