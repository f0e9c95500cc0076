/*
 * In the place of RocksDB's own functions, for a program that is linked with its shared library: databases are
 * opened on the pairs of a device. The order of a class's functions belongs to one version of RocksDB, so the
 * library is for the one it was compiled with.
 */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/utilities/optimistic_transaction_db.h>
#include <rocksdb/utilities/transaction_db.h>
#include <rocksdb/version.h>

#include "kv_db.h"

#define VISIBLE __attribute__((visibility("default")))

using unvme_rocksdb::OpenKvDatabase;

namespace {

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

__attribute__((constructor)) void CheckVersion()
{
    const std::string built = TEXT(ROCKSDB_MAJOR) "." TEXT(ROCKSDB_MINOR) "." TEXT(ROCKSDB_PATCH);
    const std::string found = rocksdb::GetRocksVersionAsString();
    if (found == built)
        return;
    fprintf(stderr, "libkv_rocksdb.so: it is for RocksDB %s, and the program has RocksDB %s: build it for that one\n",
            built.c_str(), found.c_str());
    _Exit(127);
}

rocksdb::Status Unknown(const char *what)
{
    return rocksdb::Status::NotSupported(std::string(what) + ": not on the pairs of a device");
}

} // namespace

namespace ROCKSDB_NAMESPACE {

VISIBLE Status DB::Open(const Options &options, const std::string &name, DB **database)
{
    return OpenKvDatabase(options, name, {{kDefaultColumnFamilyName, options}}, false, nullptr, database);
}

VISIBLE Status DB::Open(const DBOptions &options, const std::string &name,
                        const std::vector<ColumnFamilyDescriptor> &families, std::vector<ColumnFamilyHandle *> *handles,
                        DB **database)
{
    return OpenKvDatabase(options, name, families, false, handles, database);
}

VISIBLE Status DB::OpenForReadOnly(const Options &options, const std::string &name, DB **database, bool)
{
    return OpenKvDatabase(options, name, {{kDefaultColumnFamilyName, options}}, true, nullptr, database);
}

VISIBLE Status DB::OpenForReadOnly(const DBOptions &options, const std::string &name,
                                   const std::vector<ColumnFamilyDescriptor> &families,
                                   std::vector<ColumnFamilyHandle *> *handles, DB **database, bool)
{
    return OpenKvDatabase(options, name, families, true, handles, database);
}

VISIBLE Status DB::ListColumnFamilies(const DBOptions &, const std::string &name, std::vector<std::string> *families)
{
    return unvme_rocksdb::ListKvFamilies(name, families);
}

VISIBLE Status DB::OpenAsSecondary(const Options &, const std::string &, const std::string &, DB **)
{
    return Unknown("OpenAsSecondary");
}

VISIBLE Status DB::OpenAsSecondary(const DBOptions &, const std::string &, const std::string &,
                                   const std::vector<ColumnFamilyDescriptor> &, std::vector<ColumnFamilyHandle *> *, DB **)
{
    return Unknown("OpenAsSecondary");
}

VISIBLE Status DB::OpenAndTrimHistory(const DBOptions &, const std::string &, const std::vector<ColumnFamilyDescriptor> &,
                                      std::vector<ColumnFamilyHandle *> *, DB **, std::string)
{
    return Unknown("OpenAndTrimHistory");
}

VISIBLE Status DestroyDB(const std::string &name, const Options &, const std::vector<ColumnFamilyDescriptor> &)
{
    return unvme_rocksdb::DestroyKvDatabase(name);
}

VISIBLE Status RepairDB(const std::string &, const Options &)
{
    return Unknown("RepairDB");
}

/* These would take a database for one of RocksDB's own. */

VISIBLE Status TransactionDB::Open(const Options &, const TransactionDBOptions &, const std::string &, TransactionDB **)
{
    return Unknown("TransactionDB");
}

VISIBLE Status TransactionDB::Open(const DBOptions &, const TransactionDBOptions &, const std::string &,
                                   const std::vector<ColumnFamilyDescriptor> &, std::vector<ColumnFamilyHandle *> *,
                                   TransactionDB **)
{
    return Unknown("TransactionDB");
}

VISIBLE Status OptimisticTransactionDB::Open(const Options &, const std::string &, OptimisticTransactionDB **)
{
    return Unknown("OptimisticTransactionDB");
}

VISIBLE Status OptimisticTransactionDB::Open(const DBOptions &, const std::string &,
                                             const std::vector<ColumnFamilyDescriptor> &,
                                             std::vector<ColumnFamilyHandle *> *, OptimisticTransactionDB **)
{
    return Unknown("OptimisticTransactionDB");
}

VISIBLE Status OptimisticTransactionDB::Open(const DBOptions &, const OptimisticTransactionDBOptions &,
                                             const std::string &, const std::vector<ColumnFamilyDescriptor> &,
                                             std::vector<ColumnFamilyHandle *> *, OptimisticTransactionDB **)
{
    return Unknown("OptimisticTransactionDB");
}

namespace blob_db {

/* Its header is not public; the names are all that is needed of it. */
struct BlobDBOptions;

class BlobDB {
public:
    static Status Open(const Options &, const BlobDBOptions &, const std::string &, BlobDB **);
    static Status Open(const DBOptions &, const BlobDBOptions &, const std::string &,
                       const std::vector<ColumnFamilyDescriptor> &, std::vector<ColumnFamilyHandle *> *, BlobDB **);
};

VISIBLE Status BlobDB::Open(const Options &, const BlobDBOptions &, const std::string &, BlobDB **)
{
    return Unknown("BlobDB");
}

VISIBLE Status BlobDB::Open(const DBOptions &, const BlobDBOptions &, const std::string &,
                            const std::vector<ColumnFamilyDescriptor> &, std::vector<ColumnFamilyHandle *> *, BlobDB **)
{
    return Unknown("BlobDB");
}

} // namespace blob_db

} // namespace ROCKSDB_NAMESPACE
