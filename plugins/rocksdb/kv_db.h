/* RocksDB's interface straight on the pairs of a device: no log, no levels, no compaction. */
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include "kv_device.h"
#include "kv_index.h"

namespace unvme_rocksdb {

/* Keyspaces of a device, and so families of a database. */
constexpr uint8_t kKeyspaces = 2;

/* What is in a device for the database alone: batches, the name of the second family, its own name. */
constexpr char kBatch = 'b', kFamily = 'f', kName = 'n';

/* A column family: a keyspace of the device. */
struct KvFamily {
    KvFamily(const std::string &name, uint8_t keyspace, const rocksdb::ColumnFamilyOptions &options)
        : name(name), keyspace(keyspace), options(options), index(options.comparator)
    {
    }

    const std::string name;
    const uint8_t keyspace;
    const rocksdb::ColumnFamilyOptions options;
    KeyIndex index;
    std::atomic<bool> is_dropped{false};

    /* Bytes that are asked for at once, so that one command brings a value whole. */
    size_t Expected() const { return expected_.load(std::memory_order_relaxed); }
    /* A value was as long as that. A few long ones do not make all others cost what they do. */
    void Learn(size_t bytes);

private:
    static constexpr size_t kLeast = 4096, kMost = 128 << 10;
    static constexpr uint32_t kShortOnes = 64;
    std::atomic<size_t> expected_{kLeast};
    /* Since when values were much shorter, and the longest of them. Threads that count at once lose some. */
    std::atomic<uint32_t> short_ones_{0};
    std::atomic<size_t> longest_{0};
};

class KvFamilyHandle final : public rocksdb::ColumnFamilyHandle {
public:
    explicit KvFamilyHandle(std::shared_ptr<KvFamily> family) : family(std::move(family)) {}

    const std::string &GetName() const override { return family->name; }
    uint32_t GetID() const override { return family->keyspace; }
    rocksdb::Status GetDescriptor(rocksdb::ColumnFamilyDescriptor *descriptor) override;
    const rocksdb::Comparator *GetComparator() const override { return family->options.comparator; }

    const std::shared_ptr<KvFamily> family;
};

/* The families of a database. One that was dropped stays as long as the database, for whoever is at it. */
class KvFamilies {
public:
    KvFamily *operator[](size_t keyspace) const
    {
        return keyspace < kKeyspaces ? now_[keyspace].load(std::memory_order_acquire) : nullptr;
    }
    std::shared_ptr<KvFamily> Shared(size_t keyspace) const
    {
        auto is_it = [&](const std::shared_ptr<KvFamily> &family) { return family.get() == (*this)[keyspace]; };
        return *std::find_if(all_.begin(), all_.end(), is_it);
    }
    void Set(std::shared_ptr<KvFamily> family)
    {
        all_.push_back(family);
        now_[family->keyspace].store(family.get(), std::memory_order_release);
    }
    void Drop(size_t keyspace) { now_[keyspace].store(nullptr, std::memory_order_release); }

private:
    std::array<std::atomic<KvFamily *>, kKeyspaces> now_ = {};
    std::vector<std::shared_ptr<KvFamily>> all_;
};

/* A change of one pair. The key and the value are somebody else's. */
struct KvChange {
    enum Kind : uint8_t { kPut, kDelete, kMerge, kDeleteRange };
    Kind kind;
    KvFamily *family;
    rocksdb::Slice key;
    /* Of a range: its end. */
    rocksdb::Slice value;
};

/*
 * The pairs of a device, as iterators and databases need them. Errors name the device.
 */
class KvPairs {
public:
    KvPairs(std::shared_ptr<KvDevice> device, std::shared_ptr<rocksdb::Cache> cache);

    /* Whether there can be such a pair: it has a key and a value that the device takes. */
    rocksdb::Status Check(const KvFamily *family, const rocksdb::Slice &key, size_t value_bytes) const;
    rocksdb::Status CheckKey(const KvFamily *family, const rocksdb::Slice &key) const;

    rocksdb::Status Put(KvFamily *family, const rocksdb::Slice &key, const rocksdb::Slice &value, bool waits);
    rocksdb::Status Delete(KvFamily *family, const rocksdb::Slice &key, bool waits);
    rocksdb::Status Merge(KvFamily *family, const rocksdb::Slice &key, const rocksdb::Slice &operand,
                          rocksdb::Logger *logger);
    /* Changes of different pairs, which the device has at once; those of one pair follow each other. */
    rocksdb::Status Apply(const std::vector<KvChange> &changes);
    /*
     * The same, written down before as one pair with a number, and forgotten afterwards, unless that fails:
     * then it is left, and the device in trouble.
     */
    rocksdb::Status ApplyWhole(const std::vector<KvChange> &changes, uint32_t number, const rocksdb::Slice &record,
                               bool is_synced, bool *is_left);

    /* The value is the device's or the cache's, and gone after take. */
    rocksdb::Status Get(KvFamily *family, const rocksdb::Slice &key,
                        const std::function<void(const rocksdb::Slice &)> &take);
    /* Several values, which are asked for at once. */
    void GetEach(KvFamily *family, const rocksdb::Slice *keys, size_t count,
                 const std::function<void(size_t, const rocksdb::Status &, const rocksdb::Slice &)> &take);

    /* The order of the keys of a family is known from then on. */
    rocksdb::Status Order(KvFamily *family);
    /* A key that the device has no longer leaves the order. */
    void Forget(KvFamily *family, const rocksdb::Slice &key);

    /* Whether the device has a keyspace. */
    rocksdb::Status Probe(uint8_t keyspace);
    /* Everything in a keyspace but the database's own name. */
    rocksdb::Status Purge(uint8_t keyspace);

    /* What applications do not see: of this kind, with a number. */
    static std::string HiddenKey(char kind, uint32_t number);
    static std::string HiddenPrefix(char kind);
    static bool IsHidden(const rocksdb::Slice &key);
    rocksdb::Status GetHidden(const std::string &key, std::string *value);
    rocksdb::Status PutHidden(const std::string &key, const rocksdb::Slice &value);
    rocksdb::Status DeleteHidden(const std::string &key);
    /* A lock on the database, which gives itself a name that no other one has. */
    rocksdb::Status Lock(const KvPlace &place, std::unique_ptr<KvLock> *lock);

private:
    uint32_t Begin(Lane *lane, KvFamily *family, const rocksdb::Slice &key, bool is_held);
    rocksdb::Status Fetch(Lane *lane, KvFamily *family, const rocksdb::Slice &key, uint32_t number);
    rocksdb::Status SendChange(Lane *lane, const KvChange &change, bool waits, bool is_held, uint32_t *number);
    rocksdb::Status ApplyOn(Lane *lane, const std::vector<KvChange> &changes, bool is_held);
    rocksdb::Status Change(const KvChange &change, bool waits);
    std::string CacheKey(KvFamily *family, const rocksdb::Slice &key) const;
    bool GetCached(KvFamily *family, const rocksdb::Slice &key, const std::function<void(const rocksdb::Slice &)> &take);

    const std::shared_ptr<KvDevice> device_;
    const std::shared_ptr<rocksdb::Cache> cache_;
    const uint64_t cache_number_;
    /* Where the keys are that applications do not see. */
    KvFamily hidden_;
};

/* Iterators see changes that are made meanwhile: there is no older state of the device to look at. */
rocksdb::Iterator *NewKvIterator(KvPairs *pairs, std::shared_ptr<KvFamily> family, const rocksdb::ReadOptions &options);

/* In the place of rocksdb::DB::Open() and the like. */
rocksdb::Status OpenKvDatabase(const rocksdb::DBOptions &options, const std::string &name,
                               const std::vector<rocksdb::ColumnFamilyDescriptor> &families, bool is_read_only,
                               std::vector<rocksdb::ColumnFamilyHandle *> *handles, rocksdb::DB **database);
rocksdb::Status ListKvFamilies(const std::string &name, std::vector<std::string> *families);
rocksdb::Status DestroyKvDatabase(const std::string &name);

} // namespace unvme_rocksdb
