/* The database that programs get. */
#pragma once

#include <cinttypes>
#include <cstdio>
#include <unordered_map>

#include <rocksdb/env.h>
#include <rocksdb/statistics.h>

#include "kv_db.h"

namespace unvme_rocksdb {

using rocksdb::ColumnFamilyHandle;
using rocksdb::PinnableSlice;
using rocksdb::ReadOptions;
using rocksdb::Slice;
using rocksdb::Status;
using rocksdb::WriteOptions;

inline Status None(const char *what)
{
    return Status::NotSupported(std::string(what) + ": there are no files, no levels and no log: pairs are the device's");
}

inline Status NoTimestamps()
{
    return Status::NotSupported("timestamps: a device has one value for each key");
}

/*
 * A batch is written down as one pair before its changes are made, and forgotten afterwards: what a kill or
 * a power cut interrupts is done when the database is opened again.
 */
class KvDatabase final : public rocksdb::DB {
public:
    KvDatabase(const rocksdb::DBOptions &options, const std::string &name, std::shared_ptr<KvDevice> device,
               const KvPlace &place, bool is_read_only)
        : options_(options), name_(name), place_(place), is_read_only_(is_read_only), device_(std::move(device)),
          pairs_(device_, place.cache_bytes > 0 ? rocksdb::NewLRUCache(place.cache_bytes) : options.row_cache),
          statistics_(options.statistics.get())
    {
        if (options_.env == nullptr)
            options_.env = rocksdb::Env::Default();
    }

    ~KvDatabase() override
    {
        Status status = Close();
        if (!status.ok())
            fprintf(stderr, "unvme: %s: not everything could be written: %s\n", place_.device.c_str(),
                    status.ToString().c_str());
    }

    /* The families that there are, and those that are wanted. */
    Status Start(const std::vector<rocksdb::ColumnFamilyDescriptor> &wanted, std::vector<ColumnFamilyHandle *> *handles)
    {
        bool has_default = false;
        std::string second;
        Status status = is_read_only_ ? Status::OK() : pairs_.Lock(place_, &lock_);
        /* What went wrong for somebody before is none of this one's. */
        if (status.ok() && !is_read_only_)
            device_->Forgive();
        if (status.ok() && options_.error_if_exists && !is_read_only_)
            status = MustBeEmpty();
        if (!status.ok())
            return status;
        status = pairs_.GetHidden(KvPairs::HiddenKey(kFamily, 1), &second);
        bool has_second = status.ok();
        if (!has_second && !status.IsNotFound())
            return status;
        for (const rocksdb::ColumnFamilyDescriptor &family : wanted) {
            if (family.options.comparator->timestamp_size() > 0)
                return NoTimestamps();
            uint8_t keyspace = family.name == rocksdb::kDefaultColumnFamilyName ? 0 : 1;
            if (keyspace == 1 && has_second && family.name != second)
                return TooMany(second);
            if (keyspace == 1 && !has_second) {
                if (!options_.create_missing_column_families || is_read_only_)
                    return Status::InvalidArgument("Column family not found", family.name);
                status = CreateSecond(family.name);
                if (!status.ok())
                    return status;
                second = family.name;
                has_second = true;
            }
            families_.Set(std::make_shared<KvFamily>(family.name, keyspace, family.options));
            has_default = has_default || keyspace == 0;
        }
        if (!has_default)
            return Status::InvalidArgument("Default column family not specified");
        if (has_second && families_[1] == nullptr && !is_read_only_)
            return Status::InvalidArgument("Column families not opened", second);
        default_ = std::make_unique<KvFamilyHandle>(families_.Shared(0));
        status = is_read_only_ ? Status::OK() : FinishBatches();
        if (status.ok() && handles != nullptr) {
            handles->clear();
            for (const rocksdb::ColumnFamilyDescriptor &family : wanted)
                handles->push_back(new KvFamilyHandle(families_.Shared(family.name != rocksdb::kDefaultColumnFamilyName)));
        }
        return status;
    }

    Status Close() override
    {
        if (is_closed_)
            return Status::OK();
        is_closed_ = true;
        Status status = is_read_only_ ? Status::OK() : device_->Flush();
        lock_.reset();
        return status;
    }

    /* Changes. */

    Status Put(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &key, const Slice &value) override
    {
        return Change(options, {KvChange::kPut, Of(family), key, value});
    }
    Status Put(const WriteOptions &, ColumnFamilyHandle *, const Slice &, const Slice &, const Slice &) override
    {
        return NoTimestamps();
    }
    Status Delete(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &key) override
    {
        return Change(options, {KvChange::kDelete, Of(family), key, Slice()});
    }
    Status Delete(const WriteOptions &, ColumnFamilyHandle *, const Slice &, const Slice &) override
    {
        return NoTimestamps();
    }
    Status SingleDelete(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &key) override
    {
        return Delete(options, family, key);
    }
    Status SingleDelete(const WriteOptions &, ColumnFamilyHandle *, const Slice &, const Slice &) override
    {
        return NoTimestamps();
    }
    Status DeleteRange(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &begin, const Slice &end) override
    {
        return Change(options, {KvChange::kDeleteRange, Of(family), begin, end});
    }
    Status Merge(const WriteOptions &options, ColumnFamilyHandle *family, const Slice &key, const Slice &value) override
    {
        return Change(options, {KvChange::kMerge, Of(family), key, value});
    }
    Status Write(const WriteOptions &options, rocksdb::WriteBatch *updates) override;

    using DB::Delete;
    using DB::DeleteRange;
    using DB::Merge;
    using DB::Put;
    using DB::SingleDelete;

    /* Reads. */

    Status Get(const ReadOptions &options, ColumnFamilyHandle *family, const Slice &key, PinnableSlice *value) override
    {
        return Get(options, family, key, value, nullptr);
    }
    Status Get(const ReadOptions &options, ColumnFamilyHandle *family, const Slice &key, PinnableSlice *value,
               std::string *timestamp) override
    {
        Status status = MayRead(options, Of(family), key);
        if (status.ok())
            status = pairs_.Get(Of(family), key, [value](const Slice &found) { value->PinSelf(found); });
        if (timestamp != nullptr)
            timestamp->clear();
        CountRead(status, status.ok() ? value->size() : 0);
        return status;
    }
    Status GetMergeOperands(const ReadOptions &, ColumnFamilyHandle *, const Slice &, PinnableSlice *,
                            rocksdb::GetMergeOperandsOptions *, int *) override
    {
        return Status::NotSupported("GetMergeOperands: values are merged when they are written");
    }
    std::vector<Status> MultiGet(const ReadOptions &options, const std::vector<ColumnFamilyHandle *> &families,
                                 const std::vector<Slice> &keys, std::vector<std::string> *values) override;
    std::vector<Status> MultiGet(const ReadOptions &options, const std::vector<ColumnFamilyHandle *> &families,
                                 const std::vector<Slice> &keys, std::vector<std::string> *values,
                                 std::vector<std::string> *timestamps) override
    {
        if (timestamps != nullptr)
            timestamps->assign(keys.size(), "");
        return MultiGet(options, families, keys, values);
    }
    void MultiGet(const ReadOptions &options, ColumnFamilyHandle *family, const size_t count, const Slice *keys,
                  PinnableSlice *values, Status *statuses, const bool) override
    {
        MultiGetOf(options, Of(family), count, keys, values, statuses);
    }
    void MultiGet(const ReadOptions &options, ColumnFamilyHandle *family, const size_t count, const Slice *keys,
                  PinnableSlice *values, std::string *timestamps, Status *statuses, const bool) override
    {
        for (size_t at = 0; timestamps != nullptr && at < count; at++)
            timestamps[at].clear();
        MultiGetOf(options, Of(family), count, keys, values, statuses);
    }
    void MultiGet(const ReadOptions &options, const size_t count, ColumnFamilyHandle **families, const Slice *keys,
                  PinnableSlice *values, Status *statuses, const bool) override
    {
        /* Those of one family follow each other, as a rule. */
        for (size_t begin = 0; begin < count;) {
            size_t end = begin + 1;
            while (end < count && Of(families[end]) == Of(families[begin]))
                end++;
            MultiGetOf(options, Of(families[begin]), end - begin, keys + begin, values + begin, statuses + begin);
            begin = end;
        }
    }
    using DB::Get;
    using DB::MultiGet;

    rocksdb::Iterator *NewIterator(const ReadOptions &options, ColumnFamilyHandle *family) override
    {
        return NewKvIterator(&pairs_, static_cast<KvFamilyHandle *>(family)->family, options);
    }
    Status NewIterators(const ReadOptions &options, const std::vector<ColumnFamilyHandle *> &families,
                        std::vector<rocksdb::Iterator *> *iterators) override
    {
        iterators->clear();
        for (ColumnFamilyHandle *family : families)
            iterators->push_back(NewIterator(options, family));
        return Status::OK();
    }
    using DB::NewIterator;

    /* A device has the newest values alone. RocksDB's interface says null for that. */
    const rocksdb::Snapshot *GetSnapshot() override { return nullptr; }
    void ReleaseSnapshot(const rocksdb::Snapshot *) override {}

    /* Column families. */

    Status CreateColumnFamily(const rocksdb::ColumnFamilyOptions &options, const std::string &name,
                              ColumnFamilyHandle **handle) override;
    Status DropColumnFamily(ColumnFamilyHandle *handle) override;
    ColumnFamilyHandle *DefaultColumnFamily() const override { return default_.get(); }

    /* What is durable. */

    Status Flush(const rocksdb::FlushOptions &, ColumnFamilyHandle *) override { return device_->Flush(); }
    Status Flush(const rocksdb::FlushOptions &, const std::vector<ColumnFamilyHandle *> &) override
    {
        return device_->Flush();
    }
    using DB::Flush;
    Status FlushWAL(bool is_synced) override { return is_synced ? device_->Flush() : device_->Drain(); }
    Status SyncWAL() override { return device_->Flush(); }
    Status Resume() override;

    /* What is known of it. */

    bool GetProperty(ColumnFamilyHandle *family, const Slice &property, std::string *value) override;
    bool GetMapProperty(ColumnFamilyHandle *, const Slice &, std::map<std::string, std::string> *) override { return false; }
    bool GetIntProperty(ColumnFamilyHandle *family, const Slice &property, uint64_t *value) override;
    bool GetAggregatedIntProperty(const Slice &property, uint64_t *value) override
    {
        return GetIntProperty(DefaultColumnFamily(), property, value);
    }
    using DB::GetIntProperty;
    using DB::GetMapProperty;
    using DB::GetProperty;
    Status ResetStats() override { return Status::OK(); }
    Status GetApproximateSizes(const rocksdb::SizeApproximationOptions &, ColumnFamilyHandle *, const rocksdb::Range *, int,
                               uint64_t *) override
    {
        return Status::NotSupported("GetApproximateSizes: a device does not say how large a range of keys is");
    }
    using DB::GetApproximateSizes;
    void GetApproximateMemTableStats(ColumnFamilyHandle *, const rocksdb::Range &, uint64_t *const count,
                                     uint64_t *const size) override
    {
        *count = *size = 0;
    }
    using DB::GetApproximateMemTableStats;
    const std::string &GetName() const override { return name_; }
    rocksdb::Env *GetEnv() const override { return options_.env; }
    rocksdb::Options GetOptions(ColumnFamilyHandle *family) const override
    {
        return rocksdb::Options(options_, Of(family)->options);
    }
    using DB::GetOptions;
    rocksdb::DBOptions GetDBOptions() const override { return options_; }
    rocksdb::SequenceNumber GetLatestSequenceNumber() const override
    {
        KvCounters sum = device_->Sum();
        return sum.stores + sum.deletes;
    }
    Status GetDbIdentity(std::string &identity) const override
    {
        identity = place_.device;
        return Status::OK();
    }
    Status GetDbSessionId(std::string &session) const override
    {
        char text[24];
        snprintf(text, sizeof text, "%020" PRIX64, (uint64_t)(uintptr_t)this);
        session = text;
        return Status::OK();
    }

    /* What a device does by itself, and what there is none of. */

    Status CompactRange(const rocksdb::CompactRangeOptions &, ColumnFamilyHandle *, const Slice *, const Slice *) override
    {
        return Status::OK();
    }
    using DB::CompactRange;
    Status PauseBackgroundWork() override { return Status::OK(); }
    Status ContinueBackgroundWork() override { return Status::OK(); }
    Status EnableAutoCompaction(const std::vector<ColumnFamilyHandle *> &) override { return Status::OK(); }
    void DisableManualCompaction() override {}
    void EnableManualCompaction() override {}
    int NumberLevels(ColumnFamilyHandle *) override { return 1; }
    int MaxMemCompactionLevel(ColumnFamilyHandle *) override { return 0; }
    int Level0StopWriteTrigger(ColumnFamilyHandle *) override { return 0; }
    using DB::Level0StopWriteTrigger;
    using DB::MaxMemCompactionLevel;
    using DB::NumberLevels;
    Status SetDBOptions(const std::unordered_map<std::string, std::string> &) override { return None("SetDBOptions"); }
    Status CompactFiles(const rocksdb::CompactionOptions &, ColumnFamilyHandle *, const std::vector<std::string> &, const int,
                        const int, std::vector<std::string> *const, rocksdb::CompactionJobInfo *) override
    {
        return None("CompactFiles");
    }
    using DB::CompactFiles;
    Status DisableFileDeletions() override { return Status::OK(); }
    Status EnableFileDeletions(bool) override { return Status::OK(); }
    Status IncreaseFullHistoryTsLow(ColumnFamilyHandle *, std::string) override { return NoTimestamps(); }
    Status GetFullHistoryTsLow(ColumnFamilyHandle *, std::string *) override { return NoTimestamps(); }
    Status GetCreationTimeOfOldestFile(uint64_t *) override { return None("GetCreationTimeOfOldestFile"); }
    Status GetUpdatesSince(rocksdb::SequenceNumber, std::unique_ptr<rocksdb::TransactionLogIterator> *,
                           const rocksdb::TransactionLogIterator::ReadOptions &) override
    {
        return None("GetUpdatesSince");
    }
    Status DeleteFile(std::string) override { return None("DeleteFile"); }
    Status GetLiveFilesChecksumInfo(rocksdb::FileChecksumList *) override { return None("GetLiveFilesChecksumInfo"); }
    Status GetLiveFilesStorageInfo(const rocksdb::LiveFilesStorageInfoOptions &,
                                   std::vector<rocksdb::LiveFileStorageInfo> *) override
    {
        return None("GetLiveFilesStorageInfo");
    }
    Status GetLiveFiles(std::vector<std::string> &, uint64_t *, bool) override { return None("GetLiveFiles"); }
    Status GetSortedWalFiles(rocksdb::VectorLogPtr &) override { return None("GetSortedWalFiles"); }
    Status GetCurrentWalFile(std::unique_ptr<rocksdb::LogFile> *) override { return None("GetCurrentWalFile"); }
    Status IngestExternalFile(ColumnFamilyHandle *, const std::vector<std::string> &,
                              const rocksdb::IngestExternalFileOptions &) override
    {
        return None("IngestExternalFile");
    }
    using DB::IngestExternalFile;
    Status IngestExternalFiles(const std::vector<rocksdb::IngestExternalFileArg> &) override
    {
        return None("IngestExternalFiles");
    }
    Status CreateColumnFamilyWithImport(const rocksdb::ColumnFamilyOptions &, const std::string &,
                                        const rocksdb::ImportColumnFamilyOptions &,
                                        const rocksdb::ExportImportFilesMetaData &, ColumnFamilyHandle **) override
    {
        return None("CreateColumnFamilyWithImport");
    }
    Status VerifyChecksum(const ReadOptions &) override { return None("VerifyChecksum"); }
    using DB::VerifyChecksum;
    Status GetPropertiesOfAllTables(ColumnFamilyHandle *, rocksdb::TablePropertiesCollection *) override
    {
        return None("GetPropertiesOfAllTables");
    }
    using DB::GetPropertiesOfAllTables;
    Status GetPropertiesOfTablesInRange(ColumnFamilyHandle *, const rocksdb::Range *, std::size_t,
                                        rocksdb::TablePropertiesCollection *) override
    {
        return None("GetPropertiesOfTablesInRange");
    }

private:
    static KvFamily *Of(ColumnFamilyHandle *handle) { return static_cast<KvFamilyHandle *>(handle)->family.get(); }

    Status TooMany(const std::string &second) const
    {
        return Status::NotSupported(place_.device, "a device has two keyspaces: default and " + second +
                                                       " are the column families that there can be");
    }

    Status MustBeEmpty()
    {
        bool is_empty = true;
        Status status = device_->List(0, Slice(), [&](const Slice &key) { return is_empty = KvPairs::IsHidden(key); });
        return status.ok() && !is_empty ? Status::InvalidArgument(name_, "exists (error_if_exists is true)") : status;
    }

    Status CreateSecond(const std::string &name)
    {
        Status status = pairs_.Probe(1);
        /* What a family had that was dropped, if that was interrupted. */
        if (status.ok())
            status = pairs_.Purge(1);
        return status.ok() ? pairs_.PutHidden(KvPairs::HiddenKey(kFamily, 1), name) : status;
    }

    Status LockFamilies(std::unique_ptr<KvLock> *lock);
    Status MayWrite(const KvChange &change) const;
    Status MayRead(const ReadOptions &options, KvFamily *family, const Slice &key) const;
    Status Change(const WriteOptions &options, const KvChange &change);
    Status Make(const KvChange &change, bool waits);
    Status RemoveRange(const KvChange &change);
    Status ApplyAtOnce(const std::vector<KvChange> &changes, const WriteOptions &options, rocksdb::WriteBatch *batch);
    Status ApplyRecorded(const std::vector<KvChange> &changes, const WriteOptions &options, const Slice &record);
    Status FinishBatches();
    void MultiGetOf(const ReadOptions &options, KvFamily *family, size_t count, const Slice *keys, PinnableSlice *values,
                    Status *statuses);

    void CountRead(const Status &status, size_t bytes)
    {
        if (statistics_ == nullptr)
            return;
        statistics_->recordTick(rocksdb::NUMBER_KEYS_READ, status.ok());
        statistics_->recordTick(rocksdb::BYTES_READ, bytes);
    }
    void CountWrite(size_t pairs, size_t bytes)
    {
        if (statistics_ == nullptr)
            return;
        statistics_->recordTick(rocksdb::NUMBER_KEYS_WRITTEN, pairs);
        statistics_->recordTick(rocksdb::BYTES_WRITTEN, bytes);
    }

    rocksdb::DBOptions options_;
    const std::string name_;
    const KvPlace place_;
    const bool is_read_only_;
    std::unique_ptr<KvLock> lock_;
    const std::shared_ptr<KvDevice> device_;
    KvPairs pairs_;
    rocksdb::Statistics *const statistics_;
    KvFamilies families_;
    std::unique_ptr<KvFamilyHandle> default_;
    std::mutex families_mutex_;
    /* Batches that are being done each have a number, and a pair that says what they are. */
    std::mutex batches_mutex_;
    std::vector<uint32_t> batches_ = {0};
    /* Those whose pair could not be deleted. */
    std::vector<uint32_t> left_batches_;
    uint32_t next_batch_ = 1;
    std::atomic<bool> is_closed_{false};
};

} // namespace unvme_rocksdb
